package sqloutbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/sqloutbox"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// The sessions of PgBouncer's transaction mode belong to no client: prepared statements are of others, and LISTEN
// succeeds without a notification ever.
func TestRowsLeaveThroughPgBouncer(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	s := newSiteOn(t, d)
	s.dsn = servers.PgBouncer(t, d)
	must.Succeed(t, sqloutbox.Migrate(t.Context(), "shop", s.settings()))
	r := s.relay(func(c *sqloutbox.Config) { c.Settings.Workers = 3 })
	for i := range 30 {
		id := fmt.Sprint(i)
		s.insert("id, routing_key", "'"+id+"', 'paid'")
		if d := s.take("paid"); d.MessageId != id {
			t.Errorf("%s came", d.MessageId)
		}
	}
	servers.Eventually(t, 30*time.Second, "the log names the missing notification", func() bool {
		return strings.Contains(r.log.String(), "did not arrive within 10s, as through a pooler")
	})
	if log := r.log.String(); strings.Contains(log, "prepared statement") {
		t.Error("the relay prepares statements")
	}
}

// PostgreSQL refuses a prepared transaction that notifies.
func TestPreparedTransactionsNeedNoTrigger(t *testing.T) {
	t.Parallel()
	s := newSiteOn(t, servers.DurablePostgreSQL(t, "max_prepared_transactions=5"))
	conn, err := s.db.Conn(t.Context())
	must.Succeed(t, err)
	defer conn.Close()
	prepare := func(id string) error {
		for _, statement := range []string{
			"BEGIN", "INSERT INTO msghandler_outbox (id, routing_key) VALUES ('" + id + "', 'paid')",
			"PREPARE TRANSACTION '" + id + "'", "COMMIT PREPARED '" + id + "'",
		} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				_, _ = conn.ExecContext(t.Context(), "ROLLBACK")
				return err
			}
		}
		return nil
	}
	if err := prepare("1"); err == nil || !strings.Contains(err.Error(), "NOTIFY") {
		t.Errorf("with the trigger: %v", err)
	}
	s.exec("DROP TRIGGER msghandler_outbox_notify ON msghandler_outbox")
	must.Succeed(t, prepare("2"))
	s.relay()
	if d := s.take("paid"); d.MessageId != "2" {
		t.Errorf("%s came", d.MessageId)
	}
}
