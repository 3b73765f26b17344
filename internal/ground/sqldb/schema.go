package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// versionTable keeps, beside the table, how many of the steps were taken. A compatible step is recorded as a negative
// number: SDKs of before compatible steps read the largest number, and go on with the table.
const versionTable = `CREATE TABLE IF NOT EXISTS {table}_version (version INT NOT NULL)`

// step is one file of statements.
type step struct {
	statements []string
	// compatible: the statements of an SDK without this step go on working.
	compatible bool
}

// note is the number that records the step as the n-th.
func (s step) note(n int) int {
	if s.compatible {
		return -n
	}
	return n
}

// DDL returns the statements that Migrate runs on an empty database, for deployments that create tables themselves:
// the statements for the table, and the record of its version. Run them in one session: statements for MySQL pass
// values on in variables.
func (t *Table) DDL() ([]string, error) {
	steps, err := t.steps()
	if err != nil {
		return nil, err
	}
	statements := []string{t.words.Replace(versionTable)}
	notes := make([]string, 0, len(steps))
	for i, step := range steps {
		statements = append(statements, step.statements...)
		notes = append(notes, fmt.Sprintf("(%d)", step.note(i+1)))
	}
	note := `INSERT INTO {table}_version (version) VALUES ` + strings.Join(notes, ", ")
	return append(statements, t.words.Replace(note)), nil
}

// Migrate creates the table, or upgrades the table to this version of the SDK. Migrate may be called at every start,
// by several processes at once, and changes nothing in an up-to-date table. Migrate fails for a table that is newer
// than the SDK.
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
	// A connection that cannot end its migration is closed, which ends the migration.
	if ended := t.runAll(context.WithoutCancel(ctx), conn, end); ended != nil {
		err = errors.Join(err, ended)
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	if err != nil {
		return fmt.Errorf("migrate %s: %w", t.Name, err)
	}
	return nil
}

// upgrade takes the missing steps, and records each.
func (t *Table) upgrade(ctx context.Context, conn *sql.Conn, steps []step) error {
	if err := t.runAll(ctx, conn, versionTable); err != nil {
		return err
	}
	for {
		n, err := t.taken(ctx, conn, len(steps))
		if err != nil || n == len(steps) {
			return err
		}
		note := fmt.Sprintf(`INSERT INTO {table}_version (version) VALUES (%d)`, steps[n].note(n+1))
		statements := append(slices.Clone(steps[n].statements), note)
		if t.migrationNext != "" {
			statements = append(statements, t.migrationNext)
		}
		if err := t.runAll(ctx, conn, statements...); err != nil {
			return fmt.Errorf("step %d: %w", n+1, err)
		}
	}
}

// taken is how many of the known steps were taken. Another process may take steps while this one is between two.
func (t *Table) taken(ctx context.Context, conn *sql.Conn, known int) (int, error) {
	var version, compatible int
	err := conn.QueryRowContext(ctx, t.Query(`SELECT COALESCE(MAX(version), 0), COALESCE(-MIN(version), 0)
		FROM {table}_version`)).Scan(&version, &compatible)
	if err == nil && version > known {
		err = fmt.Errorf("its version %d is newer than the %d that this SDK knows: use a newer SDK", version, known)
	}
	return min(max(version, compatible), known), err
}

func (t *Table) runAll(ctx context.Context, conn *sql.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, t.words.Replace(statement)); err != nil {
			return err
		}
	}
	return nil
}

// compatibleSuffix ends the name of a file with a compatible step.
const compatibleSuffix = ".compatible.sql"

// steps reads the dialect's files in the order of their names; each file is a step of statements that end with a
// semicolon at the end of a line. A step for MySQL, where a CREATE or ALTER cannot be undone, has a single CREATE or
// ALTER and is safe to repeat: the process may die before the step is recorded.
func (t *Table) steps() ([]step, error) {
	names, err := fs.Glob(t.ddl, "ddl/"+t.Traits.Name+"/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([]step, 0, len(names))
	schema, index := "DATABASE()", t.Name
	if before, after, found := strings.Cut(t.Name, "."); found {
		schema, index = "'"+before+"'", after
	}
	words := strings.NewReplacer("{index}", index, "{schema}", schema)
	for _, name := range names {
		text, err := fs.ReadFile(t.ddl, name)
		if err != nil {
			return nil, err
		}
		whole := words.Replace(t.words.Replace(string(text)))
		whole = strings.TrimSuffix(strings.TrimSpace(whole), ";")
		steps = append(steps, step{strings.Split(whole, ";\n"), strings.HasSuffix(name, compatibleSuffix)})
	}
	return steps, nil
}
