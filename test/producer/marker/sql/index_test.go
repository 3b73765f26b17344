package sql_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// indexQueries read the indexes of the table from the catalogue of a database: names, and columns in their order.
var indexQueries = map[sqlmarker.Dialect]string{
	sqlmarker.PostgreSQL: `SELECT i.indexname, string_agg(a.attname, ', ' ORDER BY a.attnum) FROM pg_indexes i
		JOIN pg_attribute a ON a.attrelid = (quote_ident(i.schemaname) || '.' || quote_ident(i.indexname))::regclass
		WHERE i.tablename = 'msghandler_markers' GROUP BY i.indexname`,
	sqlmarker.MySQL: `SELECT index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', ')
		FROM information_schema.statistics WHERE table_schema = DATABASE() AND table_name = 'msghandler_markers'
		GROUP BY index_name`,
	sqlmarker.SQLite: `SELECT i.name, group_concat(c.name, ', ' ORDER BY c.seqno) FROM sqlite_master i
		JOIN pragma_index_info(i.name) c WHERE i.type = 'index' AND i.tbl_name = 'msghandler_markers' GROUP BY i.name`,
}

func TestTableHasTheIndexes(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		d.store(t, db, nil)
		rows, err := db.QueryContext(t.Context(), indexQueries[d.dialect])
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		found := map[string]string{}
		for rows.Next() {
			var name, columns string
			if err := rows.Scan(&name, &columns); err != nil {
				t.Fatal(err)
			}
			found[name] = columns
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"msghandler_markers_claim":     "shard_id, producer, state, due_at, lock_until, id",
			"msghandler_markers_created":   "created_at",
			"msghandler_markers_aggregate": "aggregate_type, aggregate_id",
		} {
			if found[name] != want {
				t.Errorf("the columns of the index %s are %q, want %q", name, found[name], want)
			}
		}
	})
}

// claimQuery is the query by which a claim finds the messages that are due.
var claimQuery = regexp.MustCompile(
	`(?s)SELECT id FROM \(SELECT id, due_at FROM msghandler_markers WHERE .* LIMIT \S+\) longest`)

// countQuery is the query by which a relay counts its unsent messages.
var countQuery = regexp.MustCompile(`(?s)SELECT state, COUNT.*UNION.*`)

// A claim reads the due messages only: neither messages that wait for their next try, nor a week of sent messages.
func TestTheIndexCoversTheClaim(t *testing.T) {
	t.Parallel()
	plans := map[sqlmarker.Dialect]struct {
		analyze, explain string
		column           string   // of the plan
		says             []string // texts in this column
	}{
		sqlmarker.PostgreSQL: {
			"ANALYZE msghandler_markers", "EXPLAIN ", "QUERY PLAN",
			[]string{"msghandler_markers_claim", "AND (due_at <="},
		},
		sqlmarker.MySQL:  {"ANALYZE TABLE msghandler_markers", "EXPLAIN ", "key", []string{"msghandler_markers_claim"}},
		sqlmarker.SQLite: {"ANALYZE", "EXPLAIN QUERY PLAN ", "detail", []string{"msghandler_markers_claim", "due_at<"}},
	}
	onEach(t, func(t *testing.T, d database) {
		db, l := d.openLossy(t)
		s := d.store(t, db, nil)
		crowd(t, s)
		want := plans[d.dialect]
		if _, err := db.ExecContext(t.Context(), want.analyze); err != nil {
			t.Fatal(err)
		}
		plan := planOf(t, db, want.explain+queryOfClaim(t, s, l), want.column)
		for _, part := range want.says {
			if !strings.Contains(plan, part) {
				t.Errorf("%q is not in the plan of the claim:\n%s", part, plan)
			}
		}
	})
}

// queryOfClaim is the first query of a claim, with its parameters.
func queryOfClaim(t *testing.T, s *sqlmarker.Store, l *lossy) string {
	t.Helper()
	query := firstQuery(t, l, claimQuery, func() error {
		_, err := s.Claim(t.Context(), sqlmarker.ClaimRequest{Owner: "relay", Limit: 200, Lock: time.Minute})
		return err
	})
	return withParameters(query, "0", "'orders'", "1000")
}

// firstQuery is the first query of a call that matches.
func firstQuery(t *testing.T, l *lossy, matches *regexp.Regexp, call func() error) string {
	t.Helper()
	var found []string
	record := func(query string) { found = append(found, matches.FindAllString(query, 1)...) }
	l.onQuery.Store(&record)
	err := call()
	l.onQuery.Store(nil)
	if err != nil || len(found) == 0 {
		t.Fatalf("a call without the query: %v", err)
	}
	return found[0]
}

func withParameters(query string, values ...string) string {
	for i, value := range values {
		query = strings.Replace(strings.Replace(query, fmt.Sprint("$", i+1), value, 1), "?", value, 1)
	}
	return query
}

// Counting the unsent messages of a shard reads those messages in the claim's index, and no sent message.
func TestBacklogReadsNoSentMessage(t *testing.T) {
	t.Parallel()
	plans := map[sqlmarker.Dialect]struct{ analyze, explain, column, reads string }{
		sqlmarker.PostgreSQL: {"VACUUM ANALYZE msghandler_markers", "EXPLAIN ", "QUERY PLAN", "Seq Scan"},
		sqlmarker.MySQL:      {"ANALYZE TABLE msghandler_markers", "EXPLAIN ", "key", "NULL"},
		sqlmarker.SQLite:     {"ANALYZE", "EXPLAIN QUERY PLAN ", "detail", "SCAN msghandler_markers"},
	}
	onEach(t, func(t *testing.T, d database) {
		db, l := d.openLossy(t)
		s := d.store(t, db, func(c *sqlmarker.Config) { c.Shards = 2 })
		crowd(t, s)
		plan := plans[d.dialect]
		for _, statement := range []string{"UPDATE msghandler_markers SET state = 3 WHERE state = 0", plan.analyze} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		query := firstQuery(t, l, countQuery, func() error {
			_, err := s.Shard(1).Backlog(t.Context())
			return err
		})
		got := planOf(t, db, plan.explain+withParameters(query, "'orders'", "'orders'"), plan.column)
		if !strings.Contains(got, "msghandler_markers_claim") || strings.Contains(got, plan.reads) {
			t.Errorf("the plan of the count:\n%s", got)
		}
	})
}

// A purge finds a slice in the index of the age: no slice passes the rows that stay, or those that the slices before
// have removed.
func TestIndexCoversThePurge(t *testing.T) {
	t.Parallel()
	plans := map[sqlmarker.Dialect]struct{ analyze, explain, column string }{
		sqlmarker.PostgreSQL: {"ANALYZE msghandler_markers", "EXPLAIN ", "QUERY PLAN"},
		sqlmarker.MySQL:      {"ANALYZE TABLE msghandler_markers", "EXPLAIN ", "key"},
		sqlmarker.SQLite:     {"ANALYZE", "EXPLAIN QUERY PLAN ", "detail"},
	}
	onEach(t, func(t *testing.T, d database) {
		db, l := d.openLossy(t)
		s := d.store(t, db, nil)
		var purge string
		record := func(_ driver.ExecerContext, statement string) {
			if strings.HasPrefix(statement, "DELETE ") && strings.Contains(statement, "FROM msghandler_markers") {
				purge = statement
			}
		}
		l.onExec.Store(&record)
		if _, err := s.Purge(t.Context()); err != nil || purge == "" {
			t.Fatalf("a purge without its statement: %v", err)
		}
		l.onExec.Store(nil)
		crowd(t, s)
		plan := plans[d.dialect]
		for _, statement := range []string{"UPDATE msghandler_markers SET cleaned_at = 1", plan.analyze} {
			if _, err := db.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		got := planOf(t, db, plan.explain+withParameters(purge, "'orders'", "1000", "'orders'", "1000"), plan.column)
		if !strings.Contains(got, "msghandler_markers_cleaned") {
			t.Errorf("the plan of a purge:\n%s", got)
		}
	})
}

// crowd fills a store with many markers that hold no message, and some due messages.
func crowd(t *testing.T, s *sqlmarker.Store) {
	t.Helper()
	markers := make([]string, 20_000)
	for i := range markers {
		markers[i] = fmt.Sprint("marker-", i)
	}
	if _, err := s.Put(t.Context(), markers, marker.Committed); err != nil {
		t.Fatal(err)
	}
	first := producer.Message{ID: "message-0"}
	err := s.Commit(t.Context(), first, func(ctx context.Context, tx *sql.Tx) error {
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
