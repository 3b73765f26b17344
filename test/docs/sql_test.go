package docs

import (
	"context"
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// dialects are the words of a block of SQL, each with an empty database.
var dialects = map[string]func(t *testing.T) (driver, dsn string){
	"postgresql": func(t *testing.T) (driver, dsn string) {
		d := servers.PostgreSQL(t)
		return d.Driver, d.DSN + "&default_query_exec_mode=simple_protocol"
	},
	"mysql": func(t *testing.T) (driver, dsn string) {
		d := servers.MariaDB(t)
		return d.Driver, d.DSN + "?multiStatements=true"
	},
	"sqlite": func(t *testing.T) (driver, dsn string) {
		return "sqlite", "file:" + filepath.Join(t.TempDir(), "db")
	},
}

// checkSQL runs a block on a database that has all tables of ours, after the page's earlier blocks of this dialect.
func checkSQL(t *testing.T, b *block) []problem {
	t.Helper()
	for dialect, empty := range dialects {
		if !b.is(dialect) {
			continue
		}
		db, err := sql.Open(empty(t))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		makeTables(t, db, dialect)
		for _, earlier := range b.before {
			if earlier.language == "sql" && earlier.is(dialect) {
				_, _ = db.ExecContext(t.Context(), earlier.text())
			}
		}
		if _, err := db.ExecContext(t.Context(), b.text()); err != nil {
			return []problem{b.problem(1, fmt.Sprintf("%s: %v", dialect, err))}
		}
		return nil
	}
	return []problem{b.problem(0, "write the database behind sql: postgresql, mysql or sqlite")}
}

// makeTables makes the tables of markers, of the inbox and of the outbox in plain SQL, for the producer orders.
func makeTables(t *testing.T, db *sql.DB, dialect string) {
	t.Helper()
	kind := map[string]sqlmarker.Dialect{
		"postgresql": sqlmarker.PostgreSQL, "mysql": sqlmarker.MySQL, "sqlite": sqlmarker.SQLite,
	}[dialect]
	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: kind, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: kind, Consumer: "payments"})
	if err != nil {
		t.Fatal(err)
	}
	for _, migrate := range []func(context.Context) error{markers.Migrate, inbox.Migrate} {
		if err := migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if dialect == "sqlite" {
		return // there is no outbox in plain SQL on SQLite
	}
	statements, err := sqlmarker.OutboxDDL(kind, "orders", "msghandler_outbox")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.ExecContext(t.Context(), strings.Join(statements, ";\n")); err != nil {
		t.Fatal(err)
	}
}
