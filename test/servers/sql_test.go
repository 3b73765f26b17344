package servers_test

import (
	"database/sql"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// sqlPatience bounds the time from the restart of a killed server to its first answer.
const sqlPatience = 30 * time.Second

func TestDatabaseDataSurvivesAKill(t *testing.T) {
	t.Parallel()
	for name, private := range map[string]func(testing.TB) *servers.Database{
		"PostgreSQL": servers.PrivatePostgreSQL, "MariaDB": servers.PrivateMariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := private(t)
			db, err := sql.Open(d.Driver, d.DSN)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			for _, statement := range []string{"CREATE TABLE kept (n INT)", "INSERT INTO kept VALUES (7)"} {
				if _, err := db.ExecContext(t.Context(), statement); err != nil {
					t.Fatal(err)
				}
			}
			d.Server.Kill(t)
			d.Server.Start(t)
			var n int
			servers.Eventually(t, sqlPatience, "a connection after the kill", func() bool {
				return db.QueryRowContext(t.Context(), "SELECT n FROM kept").Scan(&n) == nil
			})
			if n != 7 {
				t.Errorf("kept %d", n)
			}
		})
	}
}

func TestDatabasesOfOneServerAreSeparate(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(testing.TB) *servers.Database{
		"PostgreSQL": servers.PostgreSQL, "MariaDB": servers.MariaDB,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := open(t), open(t)
			if one.Server != two.Server || one.DSN == two.DSN {
				t.Errorf("%s and %s", one.DSN, two.DSN)
			}
		})
	}
}
