package doctor_test

import (
	"database/sql"
	"slices"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/sqloutbox"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// examined are the findings about the outboxes of a configuration; no other part is of interest here.
func examined(t *testing.T, c config.Config) []doctor.Finding {
	t.Helper()
	found := doctor.Examine(t.Context(), doctor.Examination{
		Settings: c, Coordinator: doctor.Coordinator{Address: "127.0.0.1:1"},
	})
	return slices.DeleteFunc(found, func(f doctor.Finding) bool { return !strings.HasPrefix(f.Area, "outbox ") })
}

func TestOutboxFindings(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	shop, away := config.DefaultOutbox(), config.DefaultOutbox()
	shop.DSN, shop.Producer = d.DSN, "orders"
	away.DSN, away.Producer = "mysql://u:hunter2@127.0.0.1:1/d", "stock"
	c := config.Default()
	c.Redis.URL, c.AMQP.URLs = "redis://127.0.0.1:1/0", []string{"amqp://127.0.0.1:1/"}
	c.Outbox = map[string]config.Outbox{"away": away, "shop": shop}

	found := examined(t, c)
	if len(found) != 2 || found[0].Name != "outbox-away" || found[0].Severity != doctor.Trouble ||
		!strings.Contains(found[0].Remedy, "outbox.away.dsn") || strings.Contains(found[0].What, "hunter2") ||
		found[1].Name != "outbox-table" || found[1].Remedy != "msghandler outbox migrate --database shop" {
		t.Fatalf("%+v", found)
	}
	delete(c.Outbox, "away")
	must.Succeed(t, sqloutbox.Migrate(t.Context(), "shop", shop))
	if found := examined(t, c); len(found) != 1 || found[0].Severity != doctor.OK {
		t.Fatalf("of an empty table: %+v", found)
	}
	db, err := sql.Open(d.Driver, d.DSN)
	must.Succeed(t, err)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO msghandler_outbox (id, routing_key, state, due_at, last_error)
		VALUES ('1001', 'paid', 4, NULL, 'no such exchange')`); err != nil {
		t.Fatal(err)
	}
	found = examined(t, c)
	if len(found) != 1 || found[0].Name != "outbox-failed" || found[0].Severity != doctor.Warning ||
		!strings.Contains(found[0].What, `: 1, such as "1001": no such exchange`) {
		t.Fatalf("of a failed row: %+v", found)
	}
	_, remedy, _ := strings.Cut(found[0].Remedy, "then: ")
	if _, err := db.ExecContext(t.Context(), remedy); err != nil {
		t.Fatalf("the remedy %q: %v", remedy, err)
	}
	if found := examined(t, c); len(found) != 1 || found[0].Severity != doctor.OK {
		t.Errorf("after the remedy: %+v", found)
	}
	_, err = db.ExecContext(t.Context(), "UPDATE msghandler_outbox SET attempts = 1, last_error = '312 NO_ROUTE'")
	must.Succeed(t, err)
	if found := examined(t, c); len(found) != 1 || found[0].Name != "outbox-refused" ||
		!strings.Contains(found[0].What, `: 1, such as "1001": 312 NO_ROUTE`) {
		t.Errorf("of a refused row: %+v", found)
	}
}

func TestOutboxOnGaleraIsFound(t *testing.T) {
	t.Parallel()
	d := servers.GaleraMariaDB(t)
	shop := config.DefaultOutbox()
	shop.DSN, shop.Producer = "mariadb://"+strings.NewReplacer("tcp(", "", ")", "").Replace(d.DSN), "orders"
	must.Succeed(t, sqloutbox.Migrate(t.Context(), "shop", shop))
	c := config.Default()
	c.Redis.URL, c.AMQP.URLs = "redis://127.0.0.1:1/0", []string{"amqp://127.0.0.1:1/"}
	c.Outbox = map[string]config.Outbox{"shop": shop}
	if found := examined(t, c); len(found) != 1 || found[0].Name != "outbox-galera" {
		t.Errorf("%+v", found)
	}
}

// A table whose default is another producer takes each short INSERT, and no relay would ever look at the row.
func TestOutboxFindingsOfRightsAndStrangers(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	shop := config.DefaultOutbox()
	shop.DSN, shop.Producer = d.DSN, "stock"
	must.Succeed(t, sqloutbox.Migrate(t.Context(), "shop", shop))
	shop.Producer = "orders"
	c := config.Default()
	c.Redis.URL, c.AMQP.URLs = "redis://127.0.0.1:1/0", []string{"amqp://127.0.0.1:1/"}
	c.Outbox = map[string]config.Outbox{"shop": shop}
	db, err := sql.Open(d.Driver, d.DSN)
	must.Succeed(t, err)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), `INSERT INTO msghandler_outbox (routing_key) VALUES ('paid')`); err != nil {
		t.Fatal(err)
	}
	found := examined(t, c)
	if len(found) != 1 || found[0].Name != "outbox-producer" || !strings.Contains(found[0].What, "producer stock wait") {
		t.Errorf("of a stranger: %+v", found)
	}
	_, remedy, _ := strings.Cut(found[0].Remedy, "or: ")
	if _, err := db.ExecContext(t.Context(), remedy); err != nil {
		t.Errorf("the remedy %q: %v", remedy, err)
	}
	_, err = db.ExecContext(t.Context(), `UPDATE msghandler_outbox SET producer = 'orders', broker = 'later'`)
	must.Succeed(t, err)
	if found := examined(t, c); len(found) != 1 || found[0].Name != "outbox-broker" {
		t.Errorf("of an unknown broker: %+v", found)
	}
	_, err = db.ExecContext(t.Context(), `UPDATE msghandler_outbox SET producer = 'stock', broker = ''`)
	must.Succeed(t, err)
	other := shop
	other.Producer = "stock"
	c.Outbox["stock"] = other
	if found := examined(t, c); len(found) != 2 || found[0].Severity != doctor.OK || found[1].Severity != doctor.OK {
		t.Errorf("with an outbox for each producer: %+v", found)
	}
	delete(c.Outbox, "stock")
	shop.DSN += "&default_transaction_read_only=on"
	c.Outbox["shop"] = shop
	found = examined(t, c)
	if len(found) != 1 || found[0].Name != "outbox-readonly" || !strings.Contains(found[0].What, "read-only") {
		t.Errorf("of a standby: %+v", found)
	}
}
