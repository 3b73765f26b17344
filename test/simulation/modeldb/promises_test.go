package modeldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/simulation/modeldb"
)

func TestMain(m *testing.M) { servers.Main(m) }

// act is a statement of a session, and what comes of it: rows, "2 rows" that were changed, the SQLState of an error, or
// waits. An act without a statement is the end of one that has waited.
type act struct{ session, statement, want string }

const waits = "waits"

// promises are what the SDK relies on. The tables have the rows (1, 'one') and (2, 'two').
var promises = []struct {
	name string
	acts []act
}{
	{"readers see committed rows only", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "UPDATE shop SET word = 'changed' WHERE id = 1", "1 rows"},
		{"a", "SELECT word FROM shop WHERE id = 1", "changed"},
		{"b", "SELECT word FROM shop WHERE id = 1", "one"},
		{"a", "COMMIT", "0 rows"},
		{"b", "SELECT word FROM shop WHERE id = 1", "changed"},
	}},
	{"statements read anew", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "SELECT word FROM shop WHERE id = 1", "one"},
		{"b", "UPDATE shop SET word = 'changed' WHERE id = 1", "1 rows"},
		{"a", "SELECT word FROM shop WHERE id = 1", "changed"},
	}},
	{"a rollback takes all back", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "INSERT INTO shop (id, word) VALUES (3, 'three')", "1 rows"},
		{"a", "DELETE FROM shop WHERE id = 1", "1 rows"},
		{"a", "UPDATE shop SET word = 'changed' WHERE id = 2", "1 rows"},
		{"a", "SELECT id, word FROM shop ORDER BY id", "2,changed;3,three"},
		{"a", "ROLLBACK", "0 rows"},
		{"a", "SELECT id, word FROM shop ORDER BY id", "1,one;2,two"},
	}},
	{"a write waits, and asks its condition again", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "UPDATE shop SET word = 'changed' WHERE id = 1", "1 rows"},
		{"b", "UPDATE shop SET word = 'late' WHERE word = 'one'", waits},
		{"a", "COMMIT", "0 rows"},
		{"b", "", "0 rows"},
		{"b", "SELECT word FROM shop WHERE id = 1", "changed"},
	}},
	{"a write waits, and goes on after a rollback", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "UPDATE shop SET word = 'changed' WHERE id = 1", "1 rows"},
		{"b", "UPDATE shop SET word = word WHERE word = 'one'", waits},
		{"a", "ROLLBACK", "0 rows"},
		{"b", "", "1 rows"},
	}},
	{"a write waits for a row that goes", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "DELETE FROM shop WHERE id = 1", "1 rows"},
		{"b", "UPDATE shop SET word = 'late' WHERE id = 1", waits},
		{"a", "COMMIT", "0 rows"},
		{"b", "", "0 rows"},
	}},
	{"two inserts of a key: the first commits", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "INSERT INTO shop (id, word) VALUES (3, 'a')", "1 rows"},
		{"b", "INSERT INTO shop (id, word) VALUES (3, 'b')", waits},
		{"c", "INSERT INTO shop (id, word) VALUES (3, 'c') ON CONFLICT DO NOTHING", waits},
		{"a", "COMMIT", "0 rows"},
		{"b", "", "23505"},
		{"c", "", "0 rows"},
		{"c", "SELECT word FROM shop WHERE id = 3", "a"},
	}},
	{"two inserts of a key: the first rolls back", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "INSERT INTO shop (id, word) VALUES (3, 'a')", "1 rows"},
		{"b", "INSERT INTO shop (id, word) VALUES (3, 'b') ON CONFLICT DO NOTHING", waits},
		{"a", "ROLLBACK", "0 rows"},
		{"b", "", "1 rows"},
		{"b", "SELECT word FROM shop WHERE id = 3", "b"},
	}},
	{"an insert waits for the removal of its key", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "DELETE FROM shop WHERE id = 1", "1 rows"},
		{"b", "INSERT INTO shop (id, word) VALUES (1, 'b') ON CONFLICT DO NOTHING", waits},
		{"a", "COMMIT", "0 rows"},
		{"b", "", "1 rows"},
		{"b", "SELECT word FROM shop WHERE id = 1", "b"},
	}},
	{"an insert waits for a change of its key's row", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "UPDATE shop SET word = 'changed' WHERE id = 1", "1 rows"},
		{"b", "INSERT INTO shop (id, word) VALUES (1, 'b') ON CONFLICT DO NOTHING", waits},
		{"a", "ROLLBACK", "0 rows"},
		{"b", "", "0 rows"},
	}},
	{"an insert does not wait for a lock", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "SELECT id FROM shop WHERE id = 1 FOR UPDATE", "1"},
		{"b", "INSERT INTO shop (id, word) VALUES (1, 'b') ON CONFLICT DO NOTHING", "0 rows"},
	}},
	{"an insert finds its own row", []act{
		{"a", "INSERT INTO shop (id, word) VALUES (3, 'a'), (3, 'b'), (2, 'c') ON CONFLICT DO NOTHING", "1 rows"},
		{"a", "SELECT id, word FROM shop ORDER BY id", "1,one;2,two;3,a"},
	}},
	{"a lock waits, or is skipped", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "SELECT id FROM shop WHERE id = 1 FOR UPDATE", "1"},
		{"b", "SELECT id FROM shop ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED", "2"},
		{"b", "SELECT id FROM shop ORDER BY id FOR UPDATE", waits},
		{"a", "UPDATE shop SET word = 'changed' WHERE id = 1", "1 rows"},
		{"a", "COMMIT", "0 rows"},
		{"b", "", "1;2"},
	}},
	{"a wait ends by its timeout", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "INSERT INTO shop (id, word) VALUES (3, 'a')", "1 rows"},
		{"b", "BEGIN", "0 rows"},
		{"b", "SET LOCAL lock_timeout = 2000", "0 rows"},
		{"b", "INSERT INTO shop (id, word) VALUES (3, 'b') ON CONFLICT DO NOTHING", waits},
		{"b", "", "55P03"},
		{"b", "SELECT id FROM shop", "25P02"},
		{"b", "ROLLBACK", "0 rows"},
		{"b", "SELECT id FROM shop ORDER BY id", "1;2"},
	}},
	{"a circle of waits has a victim", []act{
		{"a", "BEGIN", "0 rows"},
		{"b", "BEGIN", "0 rows"},
		{"a", "UPDATE shop SET word = 'a' WHERE id = 1", "1 rows"},
		{"b", "UPDATE shop SET word = 'b' WHERE id = 2", "1 rows"},
		{"a", "UPDATE shop SET word = 'a' WHERE id = 2", waits},
		{"b", "UPDATE shop SET word = 'b' WHERE id = 1", "40P01"},
		{"a", "", "1 rows"},
		{"a", "COMMIT", "0 rows"},
		{"b", "ROLLBACK", "0 rows"},
		{"a", "SELECT word FROM shop ORDER BY id", "a;a"},
	}},
	{"a failed transaction takes nothing, and rolls back", []act{
		{"a", "BEGIN", "0 rows"},
		{"a", "UPDATE shop SET word = 'changed' WHERE id = 1", "1 rows"},
		{"a", "INSERT INTO shop (id, word) VALUES (1, 'again')", "23505"},
		{"a", "SELECT id FROM shop", "25P02"},
		{"a", "COMMIT", "0 rows"},
		{"a", "SELECT word FROM shop WHERE id = 1", "one"},
	}},
	{"constraints hold", []act{
		{"a", "INSERT INTO shop (id) VALUES (3)", "23502"},
		{"a", "INSERT INTO shop (id, word) VALUES (-1, 'x')", "23514"},
		{"a", "UPDATE shop SET word = NULL WHERE id = 1", "23502"},
		{"a", "SELECT id FROM nowhere", "42P01"},
		{"a", "SELECT nothing FROM shop", "42703"},
		{"a", "INSERT INTO shop (id, word) SELECT 3, 'three' FROM shop WHERE 1 = 0", "0 rows"},
		{"a", "INSERT INTO shop (id, word) SELECT 4, 'four' WHERE NOT EXISTS (SELECT 1 FROM shop WHERE id = 4)", "1 rows"},
		{"a", "SELECT word, due FROM shop WHERE id = 4", "four,7"},
	}},
	{"unknown is not false", []act{
		{"a", "SELECT COUNT(*) FROM shop WHERE note = 'x' OR NOT note = 'x'", "0"},
		{"a", "SELECT COUNT(*) FROM shop WHERE id IN (1, NULL)", "1"},
		{"a", "SELECT COUNT(*) FROM shop WHERE id NOT IN (1, NULL)", "0"},
		{"a", "SELECT COUNT(*) FROM shop WHERE note IS NULL AND NOT (note = 'x' AND id = 9)", "2"},
		{"a", "SELECT COALESCE(MIN(due), 0), COUNT(*) FROM shop WHERE id > 2", "0,0"},
		{"a", "SELECT due, COUNT(*) FROM shop GROUP BY due UNION ALL SELECT NULL, 0 FROM shop WHERE id = 1", "7,2;,0"},
		{"a", "SELECT CASE WHEN id BETWEEN 2 AND 5 THEN word END FROM shop ORDER BY id", ";two"},
		{"a", "SELECT id FROM (SELECT id, word FROM shop ORDER BY id DESC LIMIT 1) few ORDER BY word", "2"},
	}},
}

const shop = `CREATE TABLE shop (
  id BIGINT NOT NULL,
  word TEXT NOT NULL,
  note TEXT,
  due INT NOT NULL DEFAULT 7,
  CONSTRAINT shop_id CHECK (id > 0),
  PRIMARY KEY (id)
)`

// TestPostgreSQLKeepsThePromises shows that the promises are those of the real database. The database tells a session
// that it waits for a lock, and looks for a circle then, at once.
func TestPostgreSQLKeepsThePromises(t *testing.T) {
	t.Parallel()
	config := get(pgx.ParseConfig(servers.PostgreSQL(t).DSN))(t)
	waiting := make(chan uint32, 1)
	config.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if strings.Contains(n.Message, "still waiting for") {
			waiting <- c.PID()
		}
	}
	maps.Copy(config.RuntimeParams, map[string]string{
		"log_lock_waits": "on", "deadlock_timeout": "1", "client_min_messages": "log",
	})
	db := stdlib.OpenDB(*config)
	defer db.Close()
	for _, promise := range promises {
		t.Run(promise.name, func(t *testing.T) {
			defer func() { must.Succeed(t, exec(db, "DROP TABLE shop")) }()
			play(t, db, promise.acts, func(pid int64, over chan outcome) {
				select {
				case of := <-waiting:
					if int64(of) != pid {
						t.Errorf("session %d waits, and the statement is that of %d", of, pid)
					}
				case o := <-over:
					over <- o
				case <-t.Context().Done():
				}
			})
		})
	}
}

// TestModelKeepsThePromises plays the same acts in simulated time.
func TestModelKeepsThePromises(t *testing.T) {
	for _, promise := range promises {
		t.Run(promise.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				db := modeldb.NewServer("shop", nil).Open()
				defer db.Close()
				play(t, db, promise.acts, func(int64, chan outcome) {
					synctest.Wait()
					time.Sleep(1100 * time.Millisecond) // a wait looks for a circle after a second
				})
			})
		})
	}
}

type outcome struct{ text string }

// player is a session, with the end of its statement.
type player struct {
	conn *sql.Conn
	pid  int64
	over chan outcome
}

// play plays acts. settled returns when the statement of a session has ended or waits.
func play(t *testing.T, db *sql.DB, acts []act, settled func(pid int64, over chan outcome)) {
	t.Helper()
	get(db.Exec(shop))(t)
	get(db.Exec("INSERT INTO shop (id, word) VALUES (1, 'one'), (2, 'two')"))(t)
	players := map[string]*player{}
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		cancel() // ends statements that wait after a failure
		for _, p := range players {
			_ = p.conn.Raw(func(any) error { return driver.ErrBadConn }) // closes the connection
		}
	}()
	for i, a := range acts {
		p := players[a.session]
		if p == nil {
			p = &player{conn: get(db.Conn(ctx))(t), over: make(chan outcome, 1)}
			must.Succeed(t, p.conn.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&p.pid))
			players[a.session] = p
		}
		if a.statement != "" {
			go func() { p.over <- perform(ctx, p.conn, a.statement) }()
			settled(p.pid, p.over)
		}
		got := waits
		if a.want != waits || len(p.over) > 0 {
			got = (<-p.over).text
		}
		if got != a.want {
			t.Fatalf("act %d, %s: %s: got %q, want %q", i+1, a.session, a.statement, got, a.want)
		}
	}
}

func perform(ctx context.Context, conn *sql.Conn, statement string) outcome {
	if !strings.HasPrefix(statement, "SELECT") {
		r, err := conn.ExecContext(ctx, statement)
		if err != nil {
			return outcome{stateOf(err)}
		}
		n, err := r.RowsAffected()
		if err != nil {
			return outcome{err.Error()}
		}
		return outcome{fmt.Sprint(n, " rows")}
	}
	rows, err := conn.QueryContext(ctx, statement)
	if err != nil {
		return outcome{stateOf(err)}
	}
	defer rows.Close()
	columns, _ := rows.Columns() // known while the rows are open
	var lines []string
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		fields := make([]any, len(columns))
		for i := range values {
			fields[i] = &values[i]
		}
		if err := rows.Scan(fields...); err != nil {
			return outcome{err.Error()}
		}
		words := make([]string, len(values))
		for i, v := range values {
			words[i] = v.String
		}
		lines = append(lines, strings.Join(words, ","))
	}
	if err := rows.Err(); err != nil {
		return outcome{stateOf(err)}
	}
	return outcome{strings.Join(lines, ";")}
}

func stateOf(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return err.Error()
}

// get is a value whose error ends the test.
func get[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must.Succeed(t, err)
		return v
	}
}
