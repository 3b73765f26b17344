package sqldb_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// writers are the ways in which the SDKs write to a pool of the user.
func writers(t *testing.T, db *sql.DB, dialect sqlmarker.Dialect) map[string]func(ctx context.Context) error {
	t.Helper()
	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: dialect, Producer: "orders", BeginTimeout: 1})
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: dialect, Consumer: "payments"})
	if err != nil {
		t.Fatal(err)
	}
	for _, migrate := range []func(context.Context) error{markers.Migrate, inbox.Migrate} {
		if err := migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	nothing := func(context.Context, *sql.Tx) error { return nil }
	handler := inbox.Handler(func(context.Context, *sql.Tx, *consumer.Message) error { return nil })
	return map[string]func(ctx context.Context) error{
		"claim": func(ctx context.Context) error {
			_, err := markers.Claim(ctx, sqlmarker.ClaimRequest{Limit: 1})
			if err == nil { // nothing is due, so the claim has written nothing
				_, err = markers.Put(ctx, []string{"claim"}, marker.Committed)
			}
			return err
		},
		"commit": func(ctx context.Context) error { return markers.Commit(ctx, producer.Message{ID: "commit"}, nothing) },
		"delete": func(ctx context.Context) error { return markers.Delete(ctx, []string{"claim"}) },
		"purge":  func(ctx context.Context) error { _, err := markers.Purge(ctx); return err },
		"inbox": func(ctx context.Context) error {
			return handler.Handle(ctx, &consumer.Message{ID: "1", Producer: "orders"})
		},
	}
}

// connections opens connections that stay in the pool, and runs a statement on each.
func connections(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	const many = 3
	db.SetMaxIdleConns(many)
	for range many {
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
}

// Connections to a server that was demoted stay open, and refuse each write. New connections find the successor: here
// other sessions of one server.
func TestPoolLeavesReadOnlyPostgreSQL(t *testing.T) {
	t.Parallel()
	d := servers.PostgreSQL(t)
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for name, write := range writers(t, db, sqlmarker.PostgreSQL) {
		connections(t, db, "SET default_transaction_read_only = on")
		if err := write(t.Context()); err == nil {
			t.Errorf("%s: the demoted server took the write", name)
		}
		if err := write(t.Context()); err != nil {
			t.Errorf("%s: the pool has kept the demoted server: %v", name, err)
		}
	}
}

func TestPoolLeavesReadOnlyMariaDB(t *testing.T) {
	t.Parallel()
	d := servers.PrivateMariaDB(t)
	root, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = root.Close() })
	exec := func(statement string) {
		t.Helper()
		if _, err := root.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE USER shop IDENTIFIED BY ''")
	exec("GRANT ALL ON *.* TO shop")
	exec("REVOKE READ ONLY ADMIN, SUPER ON *.* FROM shop")
	db, err := sql.Open(d.Driver, strings.Replace(d.DSN, "root@", "shop@", 1))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	for name, write := range writers(t, db, sqlmarker.MySQL) {
		connections(t, db, "DO 0")
		exec("SET GLOBAL read_only = 1")
		if err := write(t.Context()); err == nil || !strings.Contains(err.Error(), "1290") {
			t.Errorf("%s: %v", name, err)
		}
		if n := db.Stats().OpenConnections; n != 0 {
			t.Errorf("%s: the pool has kept %d connections to the demoted server", name, n)
		}
		exec("SET GLOBAL read_only = 0")
	}
}

// A server closes connections that were idle for long, or restarts: a transaction begins on another one at once.
func TestClosedConnectionsFailNoTransaction(t *testing.T) {
	t.Parallel()
	d := servers.MariaDB(t)
	db, other := open(t, d.Driver, d.DSN), open(t, d.Driver, d.DSN)
	all := writers(t, db, sqlmarker.MySQL)
	for _, name := range []string{"commit", "inbox"} {
		connections(t, db, "SET @idle = 1")
		rows, err := other.QueryContext(t.Context(), `SELECT id FROM information_schema.processlist
			WHERE db = DATABASE() AND id <> CONNECTION_ID()`)
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, id)
		}
		if err := rows.Err(); err != nil || len(ids) < 3 {
			t.Fatal(ids, err)
		}
		for _, id := range ids {
			if _, err := other.ExecContext(t.Context(), "KILL "+id); err != nil {
				t.Fatal(err)
			}
		}
		servers.Eventually(t, time.Minute, "the connections are closed", func() bool {
			var n int
			err := other.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM information_schema.processlist
				WHERE id IN (`+strings.Join(ids, ", ")+")").Scan(&n)
			return err == nil && n == 0
		})
		if err := all[name](t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
