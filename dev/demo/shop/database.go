package shop

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/examples/database"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

var tables = []string{
	`CREATE TABLE IF NOT EXISTS demo_products (
		id BIGINT PRIMARY KEY, seller_id BIGINT NOT NULL, price BIGINT NOT NULL, status VARCHAR(10) NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS demo_orders (
		id BIGINT PRIMARY KEY, order_no {key} NOT NULL, buyer_id BIGINT NOT NULL, product_id BIGINT NOT NULL,
		quantity BIGINT NOT NULL, price BIGINT NOT NULL, status VARCHAR(10) NOT NULL, create_time BIGINT NOT NULL,
		pay_time BIGINT, cancel_reason VARCHAR(10){due})`,
	// What the consumers made of the events.
	`CREATE TABLE IF NOT EXISTS demo_inventory (
		order_id BIGINT PRIMARY KEY, product_id BIGINT NOT NULL, outcome VARCHAR(10) NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS demo_shipments (order_id BIGINT PRIMARY KEY, product_id BIGINT NOT NULL)`,
	`CREATE TABLE IF NOT EXISTS demo_order_views (order_id BIGINT PRIMARY KEY, status VARCHAR(10) NOT NULL)`,
	// Events that were delivered again, and how the delivery was marked: for the books of the demo.
	`CREATE TABLE IF NOT EXISTS demo_copies (
		event {key} NOT NULL, attempt BIGINT NOT NULL, redelivered BOOLEAN NOT NULL)`,
}

// createTables makes the tables where they are missing.
func createTables(ctx context.Context, db *database.DB) error {
	// The sweep looks for old pending orders. MySQL knows no CREATE INDEX IF NOT EXISTS.
	due, statements := ", KEY demo_orders_due (status, create_time)", tables
	if db.Dialect != sqlmarker.MySQL {
		due = ""
		statements = slices.Concat(tables, []string{
			`CREATE INDEX IF NOT EXISTS demo_orders_due ON demo_orders (status, create_time)`,
		})
	}
	for _, statement := range statements {
		statement = strings.NewReplacer("{key}", db.Key(), "{due}", due).Replace(statement)
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("create tables: %w", err)
		}
	}
	return nil
}

// InTx runs a change in a transaction and commits, unless the change fails.
func (s *Shop) InTx(ctx context.Context, change func(tx *sql.Tx) error) error {
	tx, err := s.db.BeginTx(ctx, s.db.TxOptions())
	if err != nil {
		return fmt.Errorf("begin a transaction: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // deferred, for a change that panics; without effect after a commit
	if err := change(tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}

// write runs a statement in a transaction and returns the number of changed rows.
func (s *Shop) write(ctx context.Context, tx *sql.Tx, statement string, args ...any) (changed int64, err error) {
	result, err := tx.ExecContext(ctx, s.db.SQL(statement), args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// one runs an UPDATE that must change exactly one row; otherwise the error is otherwise.
func (s *Shop) one(ctx context.Context, tx *sql.Tx, otherwise error, statement string, args ...any) error {
	changed, err := s.write(ctx, tx, statement, args...)
	if err == nil && changed != 1 {
		err = otherwise
	}
	return err
}

// locked ends a SELECT of rows that nothing may change before the transaction ends.
func (s *Shop) locked() string {
	if s.db.Dialect == sqlmarker.SQLite {
		return "" // the shop's transactions write, and SQLite has one writer at a time
	}
	return " FOR UPDATE"
}

func (s *Shop) ids(ctx context.Context, query string, args ...any) (ids []int64, err error) {
	rows, err := s.db.QueryContext(ctx, s.db.SQL(query), args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}
