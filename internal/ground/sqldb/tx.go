package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
)

// ErrEnded is the error of a transaction that has ended before its COMMIT, while the caller's code went on.
var ErrEnded = errors.New("the transaction ended before its COMMIT; what followed in it is not committed; " +
	"return each error of the database, and run no statement that commits, such as DDL of MySQL")

// savepoint is set where a transaction begins, and is gone when the transaction has ended.
const savepoint = "msghandler_begin"

// Tx is a transaction with the row of a table, and with statements of the table's user.
type Tx struct {
	*sql.Tx
	guarded bool
	release func(ended error)
}

// Begin begins a transaction that StillOpen can look at.
func (t *Table) Begin(ctx context.Context, options *sql.TxOptions) (*Tx, error) {
	tx, err := t.begin(ctx, options)
	if err != nil || !tx.guarded {
		return tx, err
	}
	if _, err := tx.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
		_ = tx.Rollback() // after a failure the driver drops the connection
		return nil, err
	}
	return tx, nil
}

// begin begins a transaction. A database that rolls a whole transaction back after a deadlock would commit each later
// statement of the transaction by itself: so such a session commits nothing by itself until the end.
func (t *Table) begin(ctx context.Context, options *sql.TxOptions) (*Tx, error) {
	guarded := !t.refusesAfterError
	if t.commitsBegin == "" {
		tx, err := t.DB.BeginTx(ctx, options)
		if err != nil {
			return nil, err
		}
		return &Tx{tx, guarded, func(error) {}}, nil
	}
	conn, err := t.session(ctx)
	if err != nil {
		return nil, err
	}
	var once sync.Once
	release := func(ended error) {
		once.Do(func() {
			// After an error the transaction may be open, as the end of its context rolls it back beside: and a session that
			// commits by itself again begins with a COMMIT.
			statements := []string{"ROLLBACK", t.commitsEnd}
			if ended == nil {
				statements = statements[1:]
			}
			if t.runAll(context.WithoutCancel(ctx), conn, statements...) != nil {
				_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // not given back to the pool
			}
			_ = conn.Close()
		})
	}
	tx, err := conn.BeginTx(ctx, options)
	if err != nil {
		release(err)
		return nil, err
	}
	return &Tx{tx, guarded, release}, nil
}

// session returns a connection that commits nothing by itself.
func (t *Table) session(ctx context.Context) (*sql.Conn, error) {
	conn, err := t.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := conn.ExecContext(ctx, t.commitsBegin); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // not given back to the pool
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// Commit commits the transaction.
func (tx *Tx) Commit() error {
	err := tx.Tx.Commit()
	tx.release(err)
	return err
}

// Rollback rolls the transaction back; after Commit it does nothing.
func (tx *Tx) Rollback() error {
	err := tx.Tx.Rollback()
	tx.release(err)
	return err
}

// StillOpen returns ErrEnded when the transaction has ended, such as by a deadlock whose error the caller's code
// ignored, or by the code's own Commit. Call StillOpen once, right before Commit. A look at the transaction's own row
// is not enough: the row may be that of another transaction by now. PostgreSQL refuses all statements of a failed
// transaction, and its drivers report a COMMIT that rolled back: there StillOpen does nothing.
func (tx *Tx) StillOpen(ctx context.Context) error {
	if !tx.guarded {
		return nil
	}
	_, err := tx.ExecContext(ctx, "RELEASE SAVEPOINT "+savepoint)
	if noSavepoint(err) || errors.Is(err, sql.ErrTxDone) {
		return ErrEnded
	}
	return err
}

// noSavepoint recognizes the error of MySQL, and that of SQLite, for a savepoint that does not exist.
func noSavepoint(err error) bool {
	return hasNumber(err, "1305") || err != nil && strings.Contains(err.Error(), "no such savepoint")
}
