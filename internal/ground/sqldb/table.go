// Package sqldb is what the SDKs' tables in other people's databases have in common: dialects told apart without a driver,
// statements, migrations and purges.
package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// Table is a room's table in a database. It is safe for concurrent use.
type Table struct {
	*Traits
	DB   *sql.DB
	Name string
	// ddl holds the steps that make it, in ddl/DIALECT/NUMBER_NAME.sql.
	ddl   fs.FS
	words *strings.Replacer
}

var plainName = regexp.MustCompile(`^([A-Za-z_][A-Za-z0-9_]*\.)?[A-Za-z_][A-Za-z0-9_]*$`)

// CheckName says what is wrong with a table's name, which may begin with a schema but on SQLite, where an index cannot name
// that of its table.
func CheckName(dialect Dialect, name string) error {
	switch {
	case !plainName.MatchString(name):
		return fmt.Errorf("%q is not a plain name", name)
	case dialect == SQLite && strings.Contains(name, "."):
		return fmt.Errorf("%q names a schema; on SQLite open the database that has the table, and give its name alone", name)
	}
	return nil
}

// NewTable describes a table whose name has passed CheckName. Its statements may use {table}, {now} and the words, which
// are names in curly brackets and what they mean, one after the other.
func NewTable(db *sql.DB, dialect Dialect, name string, ddl fs.FS, words ...string) *Table {
	t := dialect.Traits()
	return &Table{
		Traits: t, DB: db, Name: name, ddl: ddl,
		words: strings.NewReplacer(append([]string{"{table}", name, "{now}", t.Now}, words...)...),
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

// InsertNew runs the INSERT of one row, and says whether there was none with its key. It waits for a transaction that
// has written one. A transaction in which it finds one can go on.
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

// purgeSlice is how many rows one statement of a purge removes: few enough to be in nobody's way, also with long bodies in
// them where a database has one writer.
const purgeSlice = 200

// Purge removes the rows of a condition in slices, with a transaction each, and returns how many they were. It rests after
// each slice for as long as that took: half of the time is the others'.
func (t *Table) Purge(ctx context.Context, where string, args ...any) (removed int64, err error) {
	slice := strings.NewReplacer("{where}", where, "{n}", strconv.Itoa(purgeSlice)).Replace(t.Slice)
	for {
		begun := time.Now()
		result, err := t.DB.ExecContext(ctx, t.Query(`DELETE FROM {table} WHERE `+slice), args...)
		if err != nil {
			return removed, err
		}
		n, err := result.RowsAffected()
		if removed += n; err != nil || n < purgeSlice {
			return removed, err
		}
		if err := backoff.Sleep(ctx, time.Since(begun)); err != nil {
			return removed, err
		}
	}
}

// Write runs statements in a transaction of their own that waits for locks no longer than patience.
func (t *Table) Write(ctx context.Context, patience time.Duration, work func(tx Execer) error) error {
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
		_ = tx.Rollback() // the connection is given up where it fails
		return err
	}
	return tx.Commit()
}

// impatient makes a session wait for locks no longer than patience, where a transaction alone cannot, and returns what
// puts its own setting back.
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
