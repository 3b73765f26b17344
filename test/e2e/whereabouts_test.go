package e2e

import (
	"context"
	"database/sql"
	"log/slog"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// lastLines keeps the last lines of each of several outputs, for a failing test.
type lastLines struct {
	mu       sync.Mutex
	speakers []*speaker
}

type speaker struct {
	mu    sync.Mutex
	lines []string
}

// kept is how many lines are kept of each.
const kept = 20

// Write implements io.Writer. A handler of slog calls it once for each line.
func (s *speaker) Write(line []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines[max(0, len(s.lines)-kept+1):], string(line))
	return len(line), nil
}

func (s *speaker) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "")
}

func (l *lastLines) logger(who string) *slog.Logger {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &speaker{}
	l.speakers = append(l.speakers, s)
	return slog.New(slog.NewTextHandler(s, nil)).With("who", who)
}

func (l *lastLines) String() (all string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.speakers {
		all += s.String()
	}
	return all
}

// tellWhereTheyAre says in whose hands the orders of a failed test are: the table's, the broker's or the consumer's.
func tellWhereTheyAre(t *testing.T, d *servers.Database, broker *servers.RabbitServer, p *paying, said *lastLines) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Error(err)
		return
	}
	defer db.Close()
	t.Logf("the table, by state (1 waiting, 3 sent, 4 failed) and owner:\n%s", rows(ctx, db,
		`SELECT state, COALESCE(owner, 'nobody'), COUNT(*), MAX(claims), MAX(attempts),
			COALESCE(MAX(due_at) - UNIX_TIMESTAMP() * 1000, 0), COALESCE(MAX(last_error), '')
			FROM msghandler_markers GROUP BY 1, 2`))
	p.mu.Lock()
	t.Logf("the consumer: %d orders were delivered, %d handlers run, %d copies dropped", len(p.deliveries), p.inHand,
		p.duplicates)
	p.mu.Unlock()
	t.Logf("payments, distinct:\n%s", rows(ctx, p.db, "SELECT COUNT(*), COUNT(DISTINCT id) FROM payments"))
	t.Logf("never delivered:\n%s", strings.Join(p.missing(ctx, db), "\n"))
	t.Logf("the last output:\n%s", said)
	var stacks strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&stacks, 1)
	t.Logf("the goroutines:\n%s", &stacks)
	// Last, because a missing broker ends the test here.
	t.Logf("the broker's queues:\n%s", broker.Ctl("list_queues", "name", "state", "messages_ready",
		"messages_unacknowledged", "consumers"))
}

// missing lists the table's rows of up to ten missing orders.
func (p *paying) missing(ctx context.Context, db *sql.DB) (found []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, row := range strings.Split(rows(ctx, db,
		"SELECT id, state, claims, attempts, created_at, cleaned_at, COALESCE(last_error, '') FROM msghandler_markers"),
		"\n") {
		id, _, _ := strings.Cut(row, " | ")
		if _, came := p.deliveries[id]; !came && len(found) < 10 {
			found = append(found, row)
		}
	}
	return found
}

// rows are the rows of a query, for people: a line for each row, or the reason for none.
func rows(ctx context.Context, db *sql.DB, query string) string {
	found, err := db.QueryContext(ctx, query)
	if err != nil {
		return err.Error()
	}
	defer found.Close()
	columns, err := found.Columns()
	if err != nil {
		return err.Error()
	}
	var lines []string
	for found.Next() {
		values, fields := make([]sql.RawBytes, len(columns)), make([]any, len(columns))
		for i := range values {
			fields[i] = &values[i]
		}
		if err := found.Scan(fields...); err != nil {
			return err.Error()
		}
		lines = append(lines, strings.Join(texts(values), " | "))
	}
	if err := found.Err(); err != nil {
		lines = append(lines, err.Error())
	}
	return strings.Join(lines, "\n")
}

func texts(values []sql.RawBytes) []string {
	all := make([]string, len(values))
	for i, value := range values {
		all[i] = string(value)
	}
	return all
}
