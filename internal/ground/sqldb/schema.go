package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// DDL returns the statements by which Migrate creates the table, for deployments that create tables themselves.
func (t *Table) DDL() ([]string, error) {
	text, err := fs.ReadFile(t.ddl, "ddl/"+t.Traits.Name+".sql")
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(strings.TrimSpace(t.words.Replace(string(text))), ";"), ";\n"), nil
}

// Migrate creates the table with its indexes. Migrate may be called at every start, by several processes at once, and
// changes nothing where the table is there. Migrate fails for a table without one of the columns or without a primary
// key: a restore has left a part, or the table is of another version of the SDK.
func (t *Table) Migrate(ctx context.Context) error {
	if err := t.migrate(ctx); err != nil {
		return fmt.Errorf("migrate %s: %w", t.Name, err)
	}
	return nil
}

func (t *Table) migrate(ctx context.Context) error {
	statements, err := t.DDL()
	if err != nil {
		return err
	}
	conn, err := t.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	there, err := t.exists(ctx, conn)
	if err == nil && !there {
		err = t.create(ctx, conn, statements)
	}
	if err != nil {
		return err
	}
	return t.examine(ctx, conn, statements)
}

func (t *Table) exists(ctx context.Context, conn *sql.Conn) (there bool, err error) {
	err = conn.QueryRowContext(ctx, t.words.Replace("SELECT "+t.tableExists)).Scan(&there)
	return there, err
}

// create runs the statements, unless another process has done so meanwhile.
func (t *Table) create(ctx context.Context, conn *sql.Conn, statements []string) error {
	if err := t.runAll(ctx, conn, t.creationBegin); err != nil {
		return err
	}
	there, err := t.exists(ctx, conn)
	if err == nil && !there {
		err = t.runAll(ctx, conn, statements...)
	}
	end := t.creationEnd
	if err != nil {
		end = t.creationAbort
	}
	// A connection that cannot end its transaction is closed, which ends the transaction.
	if ended := t.runAll(context.WithoutCancel(ctx), conn, end); ended != nil {
		err = errors.Join(err, ended)
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}

func (t *Table) runAll(ctx context.Context, conn *sql.Conn, statements ...string) error {
	for _, statement := range statements {
		if statement == "" {
			continue
		}
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// columnName is the first word of a line of a column in a CREATE TABLE.
var columnName = regexp.MustCompile(`(?m)^  ([a-z_]+) `)

// examine fails for a table that lacks the primary key, or a column of the first statement with columns: without the
// key a second row of an id is no duplicate.
func (t *Table) examine(ctx context.Context, conn *sql.Conn, statements []string) error {
	var columns []string
	for _, statement := range statements {
		if columns != nil {
			break
		}
		for _, found := range columnName.FindAllStringSubmatch(statement, -1) {
			columns = append(columns, found[1])
		}
	}
	rows, err := conn.QueryContext(ctx, t.words.Replace("SELECT "+strings.Join(columns, ", ")+" FROM {table} WHERE 1 = 0"))
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	if err != nil {
		return fmt.Errorf("the table is there, but not all of its columns; restore the table, or name another one: %w", err)
	}
	var keyed bool
	if err := conn.QueryRowContext(ctx, t.words.Replace("SELECT "+t.keyExists)).Scan(&keyed); err != nil {
		return err
	}
	if !keyed {
		return errors.New("the table has no primary key, so an id could have two rows; create the key that DDL names")
	}
	return nil
}
