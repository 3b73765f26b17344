package sqloutbox_test

import (
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/sqloutbox"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
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

// A DSN may name several hosts. Connecting takes as long as the silent ones among them, and the database answers.
func TestSilentHostsAreNoTrouble(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, servers.PostgreSQL(t))
	var silent []string
	for range 2 {
		mute, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and no process reads them
		must.Succeed(t, err)
		t.Cleanup(func() { _ = mute.Close() })
		silent = append(silent, mute.Addr().String())
	}
	host := wire.Host(t, s.dsn)
	s.dsn = strings.Replace(s.dsn, host, strings.Join(append(silent, host), ","), 1)
	r := s.relay()
	s.insert("id, routing_key", "'1', 'paid'")
	var late error
	servers.Eventually(t, time.Minute, "the database answers", func() bool {
		err := r.Check()
		if err != nil && strings.Contains(err.Error(), "no answer within") {
			late = err
		}
		return err == nil
	})
	if s.take("paid"); late != nil {
		t.Errorf("while the relay connects: %v", late)
	}
}
