package sqloutbox_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/sqloutbox"
	"github.com/msghandler/msghandler/test/servers"
)

// TestRotatedPasswordsOpenConnections rotates as docs/run/security.md says: the server first, and then the file.
func TestRotatedPasswordsOpenConnections(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, servers.MariaDB(t))
	const user = "rotated" // the server is the tests' own
	s.exec("CREATE USER " + user + "@'%' IDENTIFIED BY 'first'")
	s.exec("GRANT ALL ON *.* TO " + user + "@'%'")
	with := func(password string) *string {
		dsn := strings.Replace(s.dsn, "root@", user+":"+password+"@", 1)
		return &dsn
	}
	var present atomic.Pointer[string]
	present.Store(with("first"))
	r := s.relay(func(c *sqloutbox.Config) { c.Present = func() string { return *present.Load() } })
	s.insert("id, routing_key", "'1', 'paid'")
	s.take("paid")
	s.exec("SET PASSWORD FOR " + user + "@'%' = PASSWORD('second')")
	s.exec("KILL USER " + user)
	servers.Eventually(t, 30*time.Second, "the former password is refused", func() bool { return r.Check() != nil })
	present.Store(with("second"))
	s.insert("id, routing_key", "'2', 'paid'")
	if d := s.take("paid"); d.MessageId != "2" {
		t.Errorf("%s came", d.MessageId)
	}
}
