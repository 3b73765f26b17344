// Command books compares the orders of the quick start with their shipments.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	_ "modernc.org/sqlite" // the driver sqlite
)

const balance = `SELECT
	(SELECT count(*) FROM orders),
	(SELECT count(*) FROM shipments),
	(SELECT count(*) FROM orders WHERE id NOT IN (SELECT order_id FROM shipments)),
	(SELECT count(*) FROM shipments WHERE order_id NOT IN (SELECT id FROM orders)),
	(SELECT count(*) - count(DISTINCT order_id) FROM shipments)`

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	db, err := sql.Open("sqlite", "file:shop.db?mode=ro&_pragma=busy_timeout(5000)")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1) // ATTACH is for one connection
	if _, err := db.ExecContext(ctx, `ATTACH 'file:shipping.db?mode=ro' AS shipping`); err != nil {
		return err
	}
	var orders, shipments, missing, phantoms, twice int
	if err := db.QueryRowContext(ctx, balance).Scan(&orders, &shipments, &missing, &phantoms, &twice); err != nil {
		return err
	}
	fmt.Fprintf(os.Stdout, "orders %d, shipments %d: %d not shipped, %d shipped without an order, %d shipped twice\n",
		orders, shipments, missing, phantoms, twice)
	if missing+phantoms+twice > 0 {
		return fmt.Errorf("the books do not balance, or messages are under way")
	}
	return nil
}
