// Package sqldb is the common part of the SDKs' tables in foreign databases: dialects without a driver, statements,
// migrations and purges.
package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// Table is an SDK's table in a database. A Table is safe for concurrent use.
type Table struct {
	Traits
	DB   *sql.DB
	Name string
	// ddl holds the statements that create the table, in ddl/DIALECT.sql. Each ends with a semicolon at the end of a line.
	// The first creates the table, with a column in each line that begins with two spaces and a small letter.
	ddl   fs.FS
	words *strings.Replacer
	// tidyAt is the Unix time in nanoseconds from which TidyAfter removes rows again.
	tidyAt atomic.Int64
}

var plainName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*$`)

// maxName is the most bytes of a table's name: PostgreSQL takes 63 of an identifier, and MySQL 64, and the names of
// constraints and indexes are longer than that of their table.
const maxName = 48

// CheckName checks a table's name. The name may begin with a schema, except on SQLite, where an index cannot name the
// schema of its table.
func CheckName(dialect Dialect, name string) error {
	_, table, found := strings.Cut(name, ".")
	if !found {
		table = name
	}
	switch {
	case len(table) > maxName:
		return fmt.Errorf("%q has %d characters, more than %d", table, len(table), maxName)
	case !plainName.MatchString(name):
		return fmt.Errorf("%q is not a plain name", name)
	case dialect == SQLite && strings.Contains(name, "."):
		return fmt.Errorf("%q names a schema; on SQLite open the database that has the table, and give its name alone", name)
	}
	return nil
}

// NewTable describes a table whose name has passed CheckName. Statements may use {table}, {index} (its name without the
// schema, which begins the names of indexes), {schema}, {now} and the words: pairs of a name in curly brackets and its
// replacement.
func NewTable(db *sql.DB, dialect Dialect, name string, ddl fs.FS, words ...string) *Table {
	t := dialect.Traits()
	schema, index := "DATABASE()", name
	if before, after, found := strings.Cut(name, "."); found {
		schema, index = "'"+before+"'", after
	}
	words = append([]string{"{table}", name, "{index}", index, "{schema}", schema, "{now}", t.Now}, words...)
	return &Table{
		Traits: *t, DB: db, Name: name, ddl: ddl,
		words: strings.NewReplacer(words...),
	}
}

// Query completes a statement: the table's name, the clock, and parameters as the dialect has them.
func (t *Table) Query(text string) string {
	text = t.words.Replace(text)
	if !t.Dollars {
		return text
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(text, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteString("$" + strconv.Itoa(n))
		text = after
	}
}

// Execer is a connection or a transaction.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// InsertNew runs the INSERT of a row, and reports whether the row is new. InsertNew waits for a transaction that has
// written a row with the same key. After finding an existing row the transaction can go on.
func (t *Table) InsertNew(ctx context.Context, tx Execer, insert string, args ...any) (inserted bool, err error) {
	if t.Duplicate == nil {
		insert += t.KeepOld
	}
	result, err := tx.ExecContext(ctx, t.Query(insert), args...)
	switch {
	case err == nil:
		n, err := result.RowsAffected()
		return n > 0, err
	case t.Duplicate != nil && t.Duplicate(err):
		return false, nil
	}
	return false, err
}

// purgeSlice is the most rows that a statement of a purge removes: few enough to delay no other transaction, also
// with long bodies in a database with one writer.
const purgeSlice = 200

// OldRows are the rows that a purge removes.
type OldRows struct {
	// Where is their condition, which has no OR outside of brackets.
	Where string
	Args  []any
	// Age is the column of the condition that the index with the ending Index has in its order.
	Age, Index string
	// Key are the columns of the primary key.
	Key string
}

// Purge removes old rows in slices, with a transaction each, and returns the number of removed rows.
// After each slice, Purge pauses for the duration of the slice, and leaves half of the time to others.
func (t *Table) Purge(ctx context.Context, old OldRows) (removed int64, err error) {
	for {
		begun := time.Now()
		n, err := t.removeSlice(ctx, old)
		if removed += n; err != nil || n < purgeSlice {
			return removed, err
		}
		if err := backoff.Sleep(ctx, time.Since(begun)); err != nil {
			return removed, err
		}
	}
}

// The bounds of TidyAfter.
const (
	tidyPause   = time.Minute
	tidyTimeout = 5 * time.Second
)

// TidyAfter removes old rows after a call that has added or ended some, so that a table whose owner never calls Purge
// does not grow for ever. A call removes as many rows as were added, and a slice more. When few are left, or after an
// error, nothing is removed for a minute. One call at a time removes rows, and leaves most of its time to its answer:
// a coordinator publishes nothing before the answer of DeleteBusiness. The error is for the log: the call is done.
func (t *Table) TidyAfter(ctx context.Context, added int, old OldRows) error {
	now, next := time.Now(), t.tidyAt.Load()
	if now.UnixNano() < next || !t.tidyAt.CompareAndSwap(next, now.Add(tidyPause).UnixNano()) {
		return nil
	}
	limit := tidyTimeout
	if deadline, has := ctx.Deadline(); has {
		limit = min(limit, deadline.Sub(now)/4)
	}
	tidying, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for ; added >= 0; added -= purgeSlice {
		n, err := t.removeSlice(tidying, old)
		switch {
		case ctx.Err() != nil: // the caller ends
			return nil
		case err != nil || n < purgeSlice:
			return err
		}
	}
	t.tidyAt.Store(0) // there are more: the next call goes on
	return nil
}

// slicePatience is how long a slice waits for locks: old rows are rarely locked, except by another purge.
const slicePatience = 5 * time.Second

// removeSlice removes a slice of old rows, in a transaction at the level of the table's own: one that locks no gaps in
// which others insert, and makes no transaction of the business fail.
func (t *Table) removeSlice(ctx context.Context, old OldRows) (removed int64, err error) {
	args := slices.Repeat(old.Args, strings.Count(t.RemoveSlice, "{where}"))
	remove := strings.NewReplacer("{where}", old.Where, "{age}", old.Age, "{old}", "{index}_"+old.Index, "{key}", old.Key,
		"{n}", strconv.Itoa(purgeSlice)).Replace(t.RemoveSlice)
	err = t.Write(ctx, slicePatience, func(tx Execer) error {
		result, err := tx.ExecContext(ctx, t.Query(remove), args...)
		if err == nil {
			removed, err = result.RowsAffected()
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return removed, nil
}

// LeaveReadOnly closes the idle connections of the pool, if an error says that the server takes no writes any more.
// Such a server was demoted and keeps its connections; new connections find its successor.
func (t *Table) LeaveReadOnly(ctx context.Context, err error) {
	if err == nil || !t.ReadOnly(err) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	var idle []*sql.Conn
	for range t.DB.Stats().Idle {
		conn, err := t.DB.Conn(ctx)
		if err != nil {
			break
		}
		idle = append(idle, conn)
	}
	for _, conn := range idle {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // which closes the connection
	}
}

// Write runs statements in a new transaction that waits for locks no longer than patience.
func (t *Table) Write(ctx context.Context, patience time.Duration, work func(tx Execer) error) error {
	err := t.write(ctx, patience, work)
	t.LeaveReadOnly(ctx, err)
	return err
}

func (t *Table) write(ctx context.Context, patience time.Duration, work func(tx Execer) error) error {
	conn, err := t.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	restore, err := t.impatient(ctx, conn, patience)
	if err != nil {
		return err
	}
	defer restore()
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: t.Level})
	if err != nil {
		return err
	}
	if !t.Restored {
		_, err = tx.ExecContext(ctx, t.SetPatience(patience))
	}
	if err == nil {
		err = work(tx)
	}
	if err != nil {
		_ = tx.Rollback() // after a failure the driver drops the connection
		return err
	}
	return tx.Commit()
}

// impatient limits a session's waits for locks to patience, for databases without such a limit for a transaction, and
// returns a function that restores the session's setting.
func (t *Table) impatient(ctx context.Context, conn *sql.Conn, patience time.Duration) (restore func(), err error) {
	if !t.Restored {
		return func() {}, nil
	}
	var usual int64
	if err := conn.QueryRowContext(ctx, t.ReadPatience).Scan(&usual); err != nil {
		return nil, err
	}
	unit := time.Second
	if t.OneWriter {
		unit = time.Millisecond
	}
	if _, err := conn.ExecContext(ctx, t.SetPatience(patience)); err != nil {
		return nil, err
	}
	return func() {
		_, err := conn.ExecContext(context.WithoutCancel(ctx), t.SetPatience(time.Duration(usual)*unit))
		if err != nil {
			// A session of unknown settings is not given back to the pool.
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
		}
	}, nil
}
