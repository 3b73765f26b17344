package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
)

// ErrEnded is the error of a transaction that has ended before its COMMIT, while the caller's code went on.
var ErrEnded = errors.New("the transaction ended before its COMMIT; what followed in it is not committed; " +
	"return each error of the database, and run no statement that commits, such as DDL of MySQL")

// savepoint is set where a transaction begins, and is gone when the transaction has ended.
const savepoint = "msghandler_begin"

// Tx is a transaction with the row of a table, and with statements of the table's user.
type Tx struct {
	*sql.Tx
	session *session
}

// Begin begins a transaction that StillOpen can look at.
func (t *Table) Begin(ctx context.Context, options *sql.TxOptions) (*Tx, error) {
	if t.refusesAfterError {
		tx, err := t.DB.BeginTx(ctx, options)
		return &Tx{Tx: tx}, err
	}
	session, err := t.guard(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := session.conn.BeginTx(ctx, options)
	if err == nil {
		if _, err = tx.ExecContext(ctx, "SAVEPOINT "+savepoint); err != nil {
			_ = tx.Rollback() // after a failure the driver drops the connection
		}
	}
	if err != nil {
		session.release(err)
		return nil, err
	}
	return &Tx{tx, session}, nil
}

// session is a connection that commits nothing behind a transaction that the database has rolled back by itself, as
// after a deadlock or for a full disk: each later statement would be committed alone.
type session struct {
	conn *sql.Conn
	// mayCommit: the COMMIT that the guard lets pass is next.
	mayCommit atomic.Bool
	unguard   func(ended error) error
	once      sync.Once
}

// guard returns a guarded connection.
func (t *Table) guard(ctx context.Context) (*session, error) {
	conn, err := t.DB.Conn(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn}
	s.unguard = func(ended error) error {
		// After an error the transaction may be open, as the end of its context rolls it back beside: and a session that
		// commits by itself again begins with a COMMIT.
		statements := []string{"ROLLBACK", t.commitsEnd}
		if ended == nil {
			statements = statements[1:]
		}
		return t.runAll(context.WithoutCancel(ctx), conn, statements...)
	}
	if t.commitsBegin != "" {
		_, err = conn.ExecContext(ctx, t.commitsBegin)
	} else {
		var end func() error
		end, err = refuseCommits(conn, &s.mayCommit)
		s.unguard = func(error) error { return end() }
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// release ends the guard, and gives the connection back to its pool.
func (s *session) release(ended error) {
	s.once.Do(func() {
		if s.unguard(ended) != nil {
			s.close()
			return
		}
		_ = s.conn.Close()
	})
}

// close does not give the connection back to the pool.
func (s *session) close() {
	_ = s.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = s.conn.Close()
}

// Commit commits the transaction.
func (tx *Tx) Commit() error {
	if tx.session == nil {
		return tx.Tx.Commit()
	}
	tx.session.mayCommit.Store(true)
	err := tx.Tx.Commit()
	tx.session.release(err)
	return err
}

// Rollback rolls the transaction back; after Commit it does nothing.
func (tx *Tx) Rollback() error {
	err := tx.Tx.Rollback()
	if tx.session != nil {
		tx.session.release(err)
	}
	return err
}

// StillOpen returns ErrEnded when the transaction has ended, such as by a deadlock whose error the caller's code
// ignored, or by the code's own Commit. Call StillOpen once, right before Commit. A look at the transaction's own row
// is not enough: the row may be that of another transaction by now. PostgreSQL refuses all statements of a failed
// transaction, and its drivers report a COMMIT that rolled back: there StillOpen does nothing.
func (tx *Tx) StillOpen(ctx context.Context) error {
	if tx.session == nil {
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
