package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/internal/ground/sqldb"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// user is a service that uses all tables of the SDKs, and reads a table of its own with them.
type user struct {
	markers *sqlmarker.Store
	inbox   *sqlinbox.Inbox
	read    string
	calls   int
}

func newUser(t *testing.T, r room) *user {
	t.Helper()
	u := &user{
		markers: must[*sqlmarker.Store](t)(sqlmarker.New(sqlmarker.Config{DB: r.db, Dialect: r.dialect, Producer: "ours"})),
		inbox: must[*sqlinbox.Inbox](t)(sqlinbox.New(
			sqlinbox.Config{DB: r.db, Dialect: r.dialect, Consumer: "ours"})),
		read: "SELECT * FROM goods WHERE id > ?",
	}
	if r.dialect == sqldb.PostgreSQL {
		u.read = "SELECT * FROM goods WHERE id > $1"
	}
	r.exec(t, "CREATE TABLE goods (id INT)", "INSERT INTO goods VALUES (1)")
	u.migrate(t)
	return u
}

func (u *user) migrate(t *testing.T) {
	t.Helper()
	if err := errors.Join(u.markers.Migrate(t.Context()), u.inbox.Migrate(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// goods reads the service's own table, whose columns the statement does not name.
func (u *user) goods(ctx context.Context, tx *sql.Tx) error {
	rows, err := tx.QueryContext(ctx, u.read, 0)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
	}
	return rows.Err()
}

// all makes each call of the SDKs once, with a new id, and returns the errors.
func (u *user) all(ctx context.Context) map[string]error {
	u.calls++
	id := fmt.Sprint(u.calls)
	failures := map[string]error{}
	_, failures["put"] = u.markers.Put(ctx, []string{"put-" + id}, marker.Committed)
	_, failures["lookup"] = u.markers.Lookup(ctx, []string{"put-" + id}, true)
	failures["delete"] = u.markers.Delete(ctx, []string{"put-" + id})
	failures["commit"] = u.markers.Commit(ctx, producer.Message{ID: id, RoutingKey: "paid"}, u.goods)
	failures["relay"] = u.relay(ctx)
	failures["inbox"] = u.take(ctx, id)
	return failures
}

// relay claims and releases what waits, as a relay does.
func (u *user) relay(ctx context.Context) error {
	claim, err := u.markers.Claim(ctx, sqlmarker.ClaimRequest{Owner: "test", Limit: 10, Lock: time.Minute})
	if err != nil {
		return err
	}
	loaded, err := u.markers.Load(ctx, claim.Token, claim.Messages)
	if err != nil {
		return err
	}
	var outcomes []sqlmarker.Outcome
	for _, q := range loaded {
		outcomes = append(outcomes, sqlmarker.Outcome{ID: q.Message.ID, Shard: q.Shard, State: sqlmarker.StateSent})
	}
	_, err = u.markers.Release(ctx, claim.Token, outcomes)
	return err
}

func (u *user) take(ctx context.Context, id string) error {
	return u.inbox.Handler(func(ctx context.Context, tx *sql.Tx, _ *consumer.Message) error {
		return u.goods(ctx, tx)
	}).Handle(ctx, &consumer.Message{ID: id, Producer: "orders"})
}

// changes are what happens to tables under a running service.
var changes = map[string]map[sqldb.Dialect][]string{
	"columns": {
		sqldb.PostgreSQL: {
			"ALTER TABLE goods ADD COLUMN more INT", "ALTER TABLE msghandler_markers ADD COLUMN more INT",
			"ALTER TABLE msghandler_inbox ADD COLUMN more INT",
		},
		sqldb.MySQL: {
			"ALTER TABLE goods ADD COLUMN more INT", "ALTER TABLE msghandler_markers ADD COLUMN more INT",
			"ALTER TABLE msghandler_inbox ADD COLUMN more INT",
		},
	},
	"types": {
		sqldb.PostgreSQL: {
			"ALTER TABLE goods ALTER COLUMN id TYPE BIGINT", "ALTER TABLE msghandler_markers ALTER COLUMN verdict TYPE BIGINT",
		},
		sqldb.MySQL: {
			"ALTER TABLE goods MODIFY id BIGINT", "ALTER TABLE msghandler_markers MODIFY verdict BIGINT NOT NULL",
		},
	},
	"statements": {sqldb.PostgreSQL: {"DEALLOCATE ALL"}, sqldb.MySQL: {"FLUSH TABLES msghandler_markers"}},
}

// A driver prepares statements once, for tables as they were. A call may fail because of that, as trouble that passes:
// no business and no message is given up.
func TestChangedTablesFailNothingForGood(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		if r.dialect == sqldb.SQLite {
			return // its statements are prepared for each call
		}
		r.db.SetMaxIdleConns(1) // all calls use the same connection
		u := newUser(t, r)
		for name, change := range changes {
			for range 2 {
				wantWellSoon(t, name+", before", u) // the change before may have outdated a statement that is used seldom
			}
			r.exec(t, change[r.dialect]...)
			for call, err := range u.all(t.Context()) {
				if (call == "commit" && err != nil && !errors.Is(err, producer.ErrSendAgain)) ||
					(call == "inbox" && err != nil && !errors.Is(err, consumer.ErrTransient)) {
					t.Errorf("%s: %s: %v", name, call, err)
				}
			}
			// A call has several statements, of which each may be stale.
			wantWellSoon(t, name+", after", u)
		}
	})
}

// While the inbox has no table, no message is at fault.
func TestTablesMadeAgainAreUsed(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		u := newUser(t, r)
		wantWell(t, "before", u.all(t.Context()))
		r.exec(t, "DROP TABLE msghandler_markers", "DROP TABLE msghandler_inbox")
		failures := u.all(t.Context())
		if err := failures["inbox"]; !errors.Is(err, consumer.ErrTransient) {
			t.Errorf("the inbox without a table: %v", err)
		}
		if err := failures["commit"]; !errors.Is(err, producer.ErrNotCommitted) {
			t.Errorf("the markers without a table: %v", err)
		}
		u.migrate(t)
		wantWell(t, "after", u.all(t.Context()))
	})
}

// An inbox that refuses its rows, such as for a missing column or permission, would refuse those of all messages.
func TestBrokenInboxFaultsNoMessage(t *testing.T) {
	onEach(t, func(t *testing.T, r room) {
		u := newUser(t, r)
		r.exec(t, "ALTER TABLE msghandler_inbox RENAME COLUMN event_type TO kind")
		if err := u.all(t.Context())["inbox"]; !errors.Is(err, consumer.ErrTransient) {
			t.Errorf("the inbox without a column: %v", err)
		}
	})
}

// A value without a place in the encoding of the database, and a transaction that has failed before, are no trouble of
// the inbox: the message would be handled for ever.
func TestUnfitMessageIsNoTrouble(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	first := room{sqldb.PostgreSQL, open(t, d.Driver, d.DSN)}
	var name string
	if err := first.db.QueryRowContext(t.Context(), "SELECT current_database()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	latin := name + "_latin"
	first.exec(t, "CREATE DATABASE "+latin+" TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'")
	t.Cleanup(func() { _, _ = first.db.ExecContext(context.Background(), "DROP DATABASE "+latin+" WITH (FORCE)") })
	r := room{sqldb.PostgreSQL, open(t, d.Driver, strings.Replace(d.DSN, name, latin, 1)+"&client_encoding=UTF8")}
	u := newUser(t, r)
	message := &consumer.Message{ID: "1", Producer: "orders", RoutingKey: "\u6ce8\u6587"}
	if err := u.inbox.Handler(nil).Handle(t.Context(), message); err == nil || errors.Is(err, consumer.ErrTransient) {
		t.Errorf("a routing key outside of the encoding: %v", err)
	}
	tx, err := r.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	_, _ = tx.ExecContext(t.Context(), "SELECT 1 / 0")
	message.RoutingKey = "paid"
	if err := u.inbox.Take(t.Context(), tx, message); err == nil || errors.Is(err, consumer.ErrTransient) {
		t.Errorf("a failed transaction: %v", err)
	}
}

// In transaction mode a session of the pooler has the statements that another client has prepared under the same names.
func TestPoolerFailsNothingForGood(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	pooled := servers.PgBouncer(t, d)
	for mode, wantTrouble := range map[string]bool{"": true, "&default_query_exec_mode=exec": false} {
		first := newUser(t, room{sqldb.PostgreSQL, open(t, d.Driver, pooled+mode)})
		first.all(t.Context())
		second := *first
		other := room{sqldb.PostgreSQL, open(t, d.Driver, pooled+mode)}
		second.markers = sdkTables["markers"](t, other.db, other.dialect).(*sqlmarker.Store)
		second.inbox = sdkTables["inbox"](t, other.db, other.dialect).(*sqlinbox.Inbox)
		troubled := false
		for range 3 {
			second.calls++
			id := fmt.Sprint("second-", second.calls)
			err := second.markers.Commit(t.Context(), producer.Message{ID: id, RoutingKey: "paid"}, second.goods)
			taken := second.take(t.Context(), id)
			if err != nil && !errors.Is(err, producer.ErrSendAgain) ||
				taken != nil && !errors.Is(taken, consumer.ErrTransient) {
				t.Errorf("%q: a business ends as %v, and an effect as %v", mode, err, taken)
			}
			for _, err := range []error{err, taken} {
				troubled = troubled || err != nil
				if err != nil && !strings.Contains(err.Error(), "default_query_exec_mode") {
					t.Errorf("the remedy is not named: %v", err)
				}
			}
		}
		if troubled != wantTrouble {
			t.Errorf("%q: trouble: %v", mode, troubled)
		}
		room{sqldb.PostgreSQL, open(t, d.Driver, d.DSN)}.exec(t, "DROP TABLE goods")
	}
}

func wantWell(t *testing.T, when string, failures map[string]error) {
	t.Helper()
	for call, err := range failures {
		if err != nil {
			t.Errorf("%s: %s: %v", when, call, err)
		}
	}
}

func wantWellSoon(t *testing.T, when string, u *user) {
	t.Helper()
	servers.Eventually(t, 20*time.Second, when+": every call is well", func() bool {
		for _, err := range u.all(t.Context()) {
			if err != nil {
				return false
			}
		}
		return true
	})
}
