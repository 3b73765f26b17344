package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
)

// ErrOwnRowGone is the error of a transaction whose own first row is gone at its end: the database has rolled the
// transaction back, such as after a deadlock, and the caller's code went on.
var ErrOwnRowGone = errors.New("the database has rolled the transaction back, and its code went on after the error: " +
	"return errors of the database")

// Tx is a transaction with the row of a table, and with statements of the table's user.
type Tx struct {
	*sql.Tx
	release func(ended error)
}

// Begin begins a transaction. A database that rolls a whole transaction back after a deadlock would commit each later
// statement of the transaction by itself: so such a session commits nothing by itself until the end.
func (t *Table) Begin(ctx context.Context, options *sql.TxOptions) (*Tx, error) {
	if t.commitsBegin == "" {
		tx, err := t.DB.BeginTx(ctx, options)
		return &Tx{tx, func(error) {}}, err
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
	return &Tx{tx, release}, nil
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

// KeepsOwn returns ErrOwnRowGone when the row of a condition, which the transaction has written, is gone. PostgreSQL
// refuses all statements of a failed transaction, and its drivers report a COMMIT that rolled back: there the row needs
// no look.
func (t *Table) KeepsOwn(ctx context.Context, tx *Tx, where string, args ...any) error {
	if t.refusesAfterError {
		return nil
	}
	var own int
	err := tx.QueryRowContext(ctx, t.Query("SELECT COUNT(*) FROM {table} WHERE "+where), args...).Scan(&own)
	if err == nil && own == 0 {
		err = ErrOwnRowGone
	}
	return err
}
