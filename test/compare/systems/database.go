package systems

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver of systems that use database/sql
)

// openSQL opens the pool of a system that uses database/sql.
func openSQL(dsn string) (*sql.DB, error) {
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	db.SetMaxOpenConns(Connections)
	db.SetMaxIdleConns(Connections)
	return db, nil
}

// openPool opens the pool of a system that uses pgx.
func openPool(ctx context.Context, dsn string) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("read the database's address: %w", err)
	}
	config.MaxConns, config.MinConns = Connections, Connections
	return pgxpool.NewWithConfig(ctx, config)
}

// withSQL runs a function on a pool that is closed afterwards.
func withSQL(dsn string, do func(db *sql.DB) error) error {
	db, err := openSQL(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	return do(db)
}

// insertOrder inserts the order in a transaction of database/sql.
func insertOrder(o Order) func(ctx context.Context, tx *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, InsertOrder, o.business()...)
		return err
	}
}
