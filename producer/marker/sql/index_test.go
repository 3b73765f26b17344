package sql

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/test/servers"
)

// A claim reads the due messages only: neither messages that wait for their next try, nor a week of sent messages.
func TestTheIndexCoversTheClaim(t *testing.T) {
	t.Parallel()
	for _, d := range []struct {
		dialect          Dialect
		open             func(t *testing.T) (driver, dsn string)
		analyze, explain string
		column           string   // of the plan
		says             []string // texts in this column
	}{
		{
			PostgreSQL, func(t *testing.T) (string, string) { s := servers.PostgreSQL(t); return s.Driver, s.DSN },
			"ANALYZE msghandler_markers", "EXPLAIN ", "QUERY PLAN",
			[]string{"msghandler_markers_due", "AND (due_at <="},
		},
		{
			MySQL, func(t *testing.T) (string, string) { s := servers.MariaDB(t); return s.Driver, s.DSN },
			"ANALYZE TABLE msghandler_markers", "EXPLAIN ", "key",
			[]string{"msghandler_markers_due"},
		},
		{
			SQLite, func(t *testing.T) (string, string) { return "sqlite", "file:" + filepath.Join(t.TempDir(), "db") },
			"ANALYZE", "EXPLAIN QUERY PLAN ", "detail",
			[]string{"msghandler_markers_due", "due_at<"},
		},
	} {
		t.Run(d.dialect.String(), func(t *testing.T) {
			t.Parallel()
			db, err := sql.Open(d.open(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			s := crowded(t, db, d.dialect)
			if _, err := db.ExecContext(t.Context(), d.analyze); err != nil {
				t.Fatal(err)
			}
			query := strings.Replace(strings.Replace(dueIn("{waiting}"), "?", "'orders'", 1), "?", "200", 1)
			plan := planOf(t, db, d.explain+s.table.Query(query)+s.table.SkipLocked, d.column)
			for _, part := range d.says {
				if !strings.Contains(plan, part) {
					t.Errorf("%q is not in the plan of the claim:\n%s", part, plan)
				}
			}
		})
	}
}

// crowded is a store with many markers that hold no message, and some due messages.
func crowded(t *testing.T, db *sql.DB, dialect Dialect) *Store {
	t.Helper()
	s, err := New(Config{DB: db, Dialect: dialect, Producer: "orders"})
	if err == nil {
		err = s.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	markers := make([]string, 20_000)
	for i := range markers {
		markers[i] = fmt.Sprint("marker-", i)
	}
	if _, err := s.Put(t.Context(), markers, marker.Committed); err != nil {
		t.Fatal(err)
	}
	first := producer.Message{ID: "message-0"}
	err = s.Commit(t.Context(), first, func(ctx context.Context, tx *sql.Tx) error {
		for i := 1; i < 300; i++ {
			if err := s.Enqueue(ctx, tx, producer.Message{ID: fmt.Sprint("message-", i)}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// planOf returns a column of the database's plan of a statement.
func planOf(t *testing.T, db *sql.DB, statement, column string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), statement)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var plan strings.Builder
	for rows.Next() {
		values, to := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			if name == column {
				fmt.Fprintln(&plan, values[i].String)
			}
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return plan.String()
}
