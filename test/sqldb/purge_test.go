package sqldb_test

import (
	"testing"

	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	"github.com/msghandler/msghandler/internal/ground/sqldb"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// divisions are the ways to divide a table of PostgreSQL. In each, rows of ours and of theirs lie in tables of their
// own, and have the same ctids there.
var divisions = map[string]func(table, key string) []string{
	"partitioned": func(table, key string) []string {
		return []string{
			"ALTER TABLE " + table + " RENAME TO undivided",
			"CREATE TABLE " + table + " (LIKE undivided INCLUDING ALL) PARTITION BY LIST (" + key + ")",
			"CREATE TABLE rows_of_ours PARTITION OF " + table + " FOR VALUES IN ('ours')",
			"CREATE TABLE rows_of_theirs PARTITION OF " + table + " FOR VALUES IN ('theirs')",
		}
	},
	"inherited": func(table, _ string) []string {
		return []string{
			"CREATE TABLE rows_of_ours (LIKE " + table + " INCLUDING ALL) INHERITS (" + table + ")",
			"CREATE TABLE rows_of_theirs (LIKE " + table + " INCLUDING ALL) INHERITS (" + table + ")",
		}
	},
}

// purged is a table of an SDK with a purge.
type purged struct {
	table, key string
	// old and fresh fill a table with rows that the purge removes, and with rows that the purge keeps.
	old, fresh string
}

// purgedTables are all tables that an SDK purges.
var purgedTables = map[string]purged{
	"markers": {
		table: sqlmarker.DefaultTable, key: "producer",
		old:   `(producer, id, verdict, created_at, cleaned_at) SELECT 'ours', n::TEXT::BYTEA, 2, 0, 0`,
		fresh: `(producer, id, verdict, created_at) SELECT 'theirs', n::TEXT::BYTEA, 2, 0`,
	},
	"outbox": {
		table: sqlmarker.DefaultOutboxTable, key: "producer",
		old:   `(producer, routing_key, state, due_at, cleaned_at) SELECT 'ours', 'paid', 3, NULL, 0`,
		fresh: `(producer, routing_key) SELECT 'theirs', 'paid'`,
	},
	"inbox": {
		table: sqlinbox.DefaultTable, key: "consumer",
		old:   `(consumer, message, created_at) SELECT 'ours', n::TEXT::BYTEA, 0`,
		fresh: `(consumer, message, created_at) SELECT 'theirs', n::TEXT::BYTEA, 9999999999999`,
	},
}

// A ctid names a row of one partition. A purge by ctid alone removes rows of the others.
func TestPurgeKeepsRowsOfOtherPartitions(t *testing.T) {
	t.Parallel()
	for name, p := range purgedTables {
		for way, divide := range divisions {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				d := servers.PostgreSQL(t)
				db := open(t, d.Driver, d.DSN)
				table := sdkTables[name](t, db, sqldb.PostgreSQL).(purger)
				if err := table.Migrate(t.Context()); err != nil {
					t.Fatal(err)
				}
				const many = " FROM generate_series(1, 500) AS n" // more than one slice of a purge
				for _, statement := range append(divide(p.table, p.key),
					"INSERT INTO rows_of_ours "+p.old+many, "INSERT INTO rows_of_theirs "+p.fresh+many) {
					if _, err := db.ExecContext(t.Context(), statement); err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
				}
				if removed, err := table.Purge(t.Context()); err != nil || removed != 500 {
					t.Errorf("removed %d rows: %v", removed, err)
				}
				var ours, theirs int
				if err := db.QueryRowContext(t.Context(), `SELECT (SELECT COUNT(*) FROM rows_of_ours),
					(SELECT COUNT(*) FROM rows_of_theirs)`).Scan(&ours, &theirs); err != nil {
					t.Fatal(err)
				}
				if ours != 0 || theirs != 500 {
					t.Errorf("after the purge: %d old rows of ours, %d fresh rows of theirs", ours, theirs)
				}
			})
		}
	}
}
