package languages

import (
	"database/sql"
	"os"
	"os/exec"
	"testing"

	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// A marker outside of the business's transaction would commit by itself, and its message go out without a business.
func TestMarkersOutsideOfTransactionsAreRefused(t *testing.T) {
	t.Parallel()
	database := mariaDB.open(t)
	db := migrate(t, mariaDB, database)
	url := mariaDB.url(database.DSN, hostOf.FindString(database.DSN))
	mistakes(t, jvm(t, "Mistakes"), "DATABASE_URL="+url)
	var markers int
	if err := db.QueryRowContext(t.Context(), `SELECT COUNT(*) FROM msghandler_markers`).Scan(&markers); err != nil {
		t.Fatal(err)
	}
	if markers != 0 {
		t.Errorf("%d markers have committed without a business", markers)
	}
}

// PostgreSQL answers the COMMIT of a transaction that has failed by rolling back, without an error.
func TestSwallowedErrorsAreNoCommit(t *testing.T) {
	t.Parallel()
	database := postgreSQL.open(t)
	migrate(t, postgreSQL, database)
	python := servers.Python(t, "psycopg2", "pika")
	mistakes(t, []string{python, "testdata/mistakes.py"}, "DATABASE_URL="+database.DSN,
		"PYTHONPATH=../../examples/python", "PYTHONDONTWRITEBYTECODE=1")
}

// mistakes runs a program that says which of its mistakes are not refused.
func mistakes(t *testing.T, command []string, environment ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir()}, environment...)
	if output, err := cmd.CombinedOutput(); err != nil || len(output) > 0 {
		t.Errorf("%v\n%s", err, output)
	}
}

// migrate creates the tables of the SDK.
func migrate(t *testing.T, kind databaseKind, d *servers.Database) *sql.DB {
	t.Helper()
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: kind.dialect, Producer: "mistaken-orders"})
	if err == nil {
		err = markers.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: kind.dialect, Consumer: "mistaken-payments"})
	if err == nil {
		err = inbox.Migrate(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return db
}
