package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// versionTable keeps, beside the table, how many of the steps were taken.
const versionTable = `CREATE TABLE IF NOT EXISTS {table}_version (version INT NOT NULL)`

// DDL is what Migrate runs on a database that has nothing of it yet, for those who create tables themselves: the
// statements that make the table, and the note of its version.
func (t *Table) DDL() ([]string, error) {
	steps, err := t.steps()
	if err != nil {
		return nil, err
	}
	statements := []string{t.words.Replace(versionTable)}
	for _, step := range steps {
		statements = append(statements, step...)
	}
	note := fmt.Sprintf(`INSERT INTO {table}_version (version) VALUES (%d)`, len(steps))
	return append(statements, t.words.Replace(note)), nil
}

// Migrate creates the table, or upgrades it to what this version of the SDK needs. It may be called at every start, by
// several processes at once, and changes nothing where nothing is to be done. It fails for a table that is newer than
// the SDK.
func (t *Table) Migrate(ctx context.Context) error {
	steps, err := t.steps()
	if err != nil {
		return err
	}
	conn, err := t.DB.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", t.Name, err)
	}
	defer conn.Close()
	if err := t.runAll(ctx, conn, t.migrationBegin); err != nil {
		return fmt.Errorf("migrate %s: %w", t.Name, err)
	}
	end := t.migrationEnd
	if err = t.upgrade(ctx, conn, steps); err != nil {
		end = t.migrationAbort
	}
	// A connection that cannot end what it began ends it by closing.
	if ended := t.runAll(context.WithoutCancel(ctx), conn, end); ended != nil {
		err = errors.Join(err, ended)
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	if err != nil {
		return fmt.Errorf("migrate %s: %w", t.Name, err)
	}
	return nil
}

// upgrade takes the steps that were not taken yet, and notes each.
func (t *Table) upgrade(ctx context.Context, conn *sql.Conn, steps [][]string) error {
	if err := t.runAll(ctx, conn, versionTable); err != nil {
		return err
	}
	var version int
	err := conn.QueryRowContext(ctx, t.Query(`SELECT COALESCE(MAX(version), 0) FROM {table}_version`)).Scan(&version)
	if err != nil {
		return err
	}
	if version > len(steps) {
		return fmt.Errorf("its version %d is newer than the %d that this SDK knows: use a newer SDK", version, len(steps))
	}
	for ; version < len(steps); version++ {
		note := fmt.Sprintf(`INSERT INTO {table}_version (version) VALUES (%d)`, version+1)
		if err := t.runAll(ctx, conn, append(steps[version], note)...); err != nil {
			return fmt.Errorf("step %d: %w", version+1, err)
		}
	}
	return nil
}

func (t *Table) runAll(ctx context.Context, conn *sql.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, t.words.Replace(statement)); err != nil {
			return err
		}
	}
	return nil
}

// steps reads the dialect's files in the order of their names; each is one step of statements that end with a semicolon
// at the end of a line. A step for MySQL, where a CREATE or ALTER cannot be undone, is a single statement, which does no
// harm when it is made a second time: the process may die before the step is noted.
func (t *Table) steps() ([][]string, error) {
	names, err := fs.Glob(t.ddl, "ddl/"+t.Traits.Name+"/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([][]string, 0, len(names))
	index := t.Name[strings.LastIndex(t.Name, ".")+1:]
	for _, name := range names {
		text, err := fs.ReadFile(t.ddl, name)
		if err != nil {
			return nil, err
		}
		whole := strings.ReplaceAll(t.words.Replace(string(text)), "{index}", index)
		whole = strings.TrimSuffix(strings.TrimSpace(whole), ";")
		steps = append(steps, strings.Split(whole, ";\n"))
	}
	return steps, nil
}
