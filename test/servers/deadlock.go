package servers

import (
	"database/sql"
	"errors"
	"testing"
)

// Loser has a database roll a transaction back behind the back of its code: by a deadlock with a transaction that has
// written more, or on SQLite, which has one writer, by a conflict clause.
type Loser struct {
	db     *sql.DB
	winner *sql.Tx
}

// NewLoser makes the table stock with two rows.
func NewLoser(t testing.TB, driver string, db *sql.DB) *Loser {
	t.Helper()
	run := func(on interface {
		Exec(query string, args ...any) (sql.Result, error)
	}, statements ...string,
	) {
		for _, statement := range statements {
			if _, err := on.Exec(statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(db, "CREATE TABLE stock (id INT PRIMARY KEY, n INT)", "INSERT INTO stock (id, n) VALUES (1, 0), (2, 0)")
	if driver == "sqlite" {
		return &Loser{db: db}
	}
	winner, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = winner.Rollback() })
	if driver == postgreSQL.driver { // who looks first is ended
		run(winner, "SET LOCAL deadlock_timeout = '1min'")
	}
	run(winner, "INSERT INTO stock (id, n) VALUES (11, 0), (12, 0), (13, 0), (14, 0), (15, 0), (16, 0), (17, 0)",
		"UPDATE stock SET n = n + 1 WHERE id > 10", "UPDATE stock SET n = n + 1 WHERE id = 2")
	return &Loser{db, winner}
}

// Lose has the database roll tx back, and the winner too.
func (l *Loser) Lose(t testing.TB, tx *sql.Tx) {
	t.Helper()
	if l.winner == nil {
		if _, err := tx.Exec("INSERT OR ROLLBACK INTO stock (id, n) VALUES (1, 0)"); err == nil {
			t.Error("no conflict")
		}
		return
	}
	if _, err := tx.Exec("UPDATE stock SET n = n + 1 WHERE id = 1"); err != nil {
		t.Error(err)
	}
	blocked := make(chan error, 1)
	go func() {
		_, err := l.winner.Exec("UPDATE stock SET n = n + 1 WHERE id = 1")
		blocked <- err
	}()
	if _, err := tx.Exec("UPDATE stock SET n = n + 1 WHERE id = 2"); err == nil {
		t.Error("no deadlock")
	}
	if err := errors.Join(<-blocked, l.winner.Rollback()); err != nil {
		t.Error(err)
	}
}

// Moved is how much of the stock is committed as moved.
func (l *Loser) Moved(t testing.TB) (n int) {
	t.Helper()
	if err := l.db.QueryRow("SELECT SUM(n) FROM stock").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
