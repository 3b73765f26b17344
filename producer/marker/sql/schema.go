package sql

import (
	"context"
	"embed"

	"github.com/msghandler/msghandler/internal/sqldb"
)

//go:embed ddl
var ddl embed.FS

// Dialect is the database that a store speaks to.
type Dialect = sqldb.Dialect

// The dialects.
const (
	// PostgreSQL, through a driver whose errors tell their SQLState, as pgx and lib/pq do.
	PostgreSQL = sqldb.PostgreSQL
	// MySQL and MariaDB, with InnoDB, through go-sql-driver/mysql.
	MySQL = sqldb.MySQL
	// SQLite, through modernc.org/sqlite or another.
	SQLite = sqldb.SQLite
)

// DDL is what Migrate runs on a database that has nothing of it yet, for those who create tables themselves: the
// statements that make the table, and the note of its version.
func (s *Store) DDL() ([]string, error) { return s.table.DDL() }

// Migrate creates the table, or upgrades it to what this version of the SDK needs. It may be called at every start, by
// several processes at once, and changes nothing where nothing is to be done. It fails for a table that is newer than
// the SDK.
func (s *Store) Migrate(ctx context.Context) error { return s.table.Migrate(ctx) }
