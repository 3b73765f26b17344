package sql

import (
	"context"
	"embed"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
)

//go:embed ddl
var ddl embed.FS

// Dialect is the kind of database of a store.
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

// DDL returns the statements by which Migrate creates the table, for deployments that create tables themselves.
func (s *Store) DDL() ([]string, error) { return s.table.DDL() }

// Migrate creates the table with its indexes. Call Migrate at every start, also from several processes at once; a table
// that is there is not changed. Migrate fails for a table that lacks a column, its primary key or its identity.
func (s *Store) Migrate(ctx context.Context) error {
	if err := s.table.Migrate(ctx); err != nil {
		return err
	}
	_, err := s.Identity(ctx)
	return err
}
