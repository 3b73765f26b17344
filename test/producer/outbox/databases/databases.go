// Package databases gives tests of the outbox an empty database of each kind, and a sender that keeps books.
package databases

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	_ "modernc.org/sqlite" // the driver of SQLite; package servers has the others

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
)

// Database is a database under test.
type Database struct {
	Dialect     sqlmarker.Dialect
	Driver, DSN string
}

// OnEach runs a test on an empty database of each kind.
func OnEach(t *testing.T, test func(t *testing.T, d Database)) {
	t.Helper()
	for dialect, open := range map[sqlmarker.Dialect]func(t *testing.T) Database{
		sqlmarker.PostgreSQL: func(t *testing.T) Database { return of(sqlmarker.PostgreSQL, servers.PostgreSQL(t)) },
		sqlmarker.MySQL:      func(t *testing.T) Database { return of(sqlmarker.MySQL, servers.MariaDB(t)) },
		sqlmarker.SQLite:     func(t *testing.T) Database { return SQLite(t) },
	} {
		t.Run(dialect.String(), func(t *testing.T) {
			t.Parallel()
			test(t, open(t))
		})
	}
}

func of(dialect sqlmarker.Dialect, d *servers.Database) Database {
	return Database{dialect, d.Driver, d.DSN}
}

// SQLite is a database in a new file.
func SQLite(t testing.TB) Database {
	return Database{
		sqlmarker.SQLite, "sqlite", "file:" + filepath.Join(t.TempDir(), "db") +
			"?_pragma=busy_timeout(300000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)",
	}
}

// Open connects until the test ends.
func (d Database) Open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Exec runs statements.
func Exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := db.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// Message is a message with some content of its own.
func Message(id string) producer.Message {
	return producer.Message{
		ID: id, Exchange: "orders", RoutingKey: "order.paid", ContentType: "text/plain", Body: []byte("paid " + id),
		Headers: map[string]string{"of": id},
	}
}

// Numbered are ids whose order is their order as texts.
func Numbered(prefix string, n int) []string {
	ids := make([]string, n)
	for i := range ids {
		ids[i] = fmt.Sprintf("%s-%05d", prefix, i)
	}
	return ids
}

// Recorder is a sender that takes every message and keeps books.
type Recorder struct {
	mu   sync.Mutex
	sent map[string][]sqlmarker.Queued
}

// Send implements outbox.Sender.
func (r *Recorder) Send(_ context.Context, messages []sqlmarker.Queued) []outbox.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sent == nil {
		r.sent = map[string][]sqlmarker.Queued{}
	}
	results := make([]outbox.Result, len(messages))
	for i, q := range messages {
		r.sent[q.Message.ID] = append(r.sent[q.Message.ID], q)
		results[i].Fate = outbox.Sent
	}
	return results
}

// Of returns what was sent under an id.
func (r *Recorder) Of(id string) []sqlmarker.Queued {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.sent[id]
}

// Len is how many ids were sent.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.sent)
}

// Run runs a relay until the test ends, or stop is called.
func Run(t testing.TB, r *outbox.Relay) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}
