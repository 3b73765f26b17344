package sql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

//go:embed ddl
var ddl embed.FS

// versionTable keeps, beside the markers' table, how many of the steps were taken.
const versionTable = `CREATE TABLE IF NOT EXISTS {table}_version (version INT NOT NULL)`

// DDL is what Migrate runs on a database that has nothing of it yet, for those who create tables themselves: the
// statements that make the table, and the note of its version.
func (s *Store) DDL() ([]string, error) {
	steps, err := s.steps(ddl)
	if err != nil {
		return nil, err
	}
	statements := []string{s.names.Replace(versionTable)}
	for _, step := range steps {
		statements = append(statements, step...)
	}
	note := fmt.Sprintf(`INSERT INTO {table}_version (version) VALUES (%d)`, len(steps))
	return append(statements, s.names.Replace(note)), nil
}

// Migrate creates the table, or upgrades it to what this version of the SDK needs. It may be called at every start, by
// several processes at once, and changes nothing where nothing is to be done. It fails for a table that is newer than
// the SDK.
func (s *Store) Migrate(ctx context.Context) error {
	return s.migrate(ctx, ddl)
}

func (s *Store) migrate(ctx context.Context, from fs.FS) error {
	steps, err := s.steps(from)
	if err != nil {
		return err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate %s: %w", s.config.Table, err)
	}
	defer conn.Close()
	if err := s.runAll(ctx, conn, s.dialect.migrationBegin); err != nil {
		return fmt.Errorf("migrate %s: %w", s.config.Table, err)
	}
	end := s.dialect.migrationEnd
	if err = s.upgrade(ctx, conn, steps); err != nil {
		end = s.dialect.migrationAbort
	}
	// A connection that cannot end what it began ends it by closing.
	if ended := s.runAll(context.WithoutCancel(ctx), conn, end); ended != nil {
		err = errors.Join(err, ended)
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	if err != nil {
		return fmt.Errorf("migrate %s: %w", s.config.Table, err)
	}
	return nil
}

// upgrade takes the steps that were not taken yet, and notes each.
func (s *Store) upgrade(ctx context.Context, conn *sql.Conn, steps [][]string) error {
	if err := s.runAll(ctx, conn, versionTable); err != nil {
		return err
	}
	var version int
	err := conn.QueryRowContext(ctx, s.query(`SELECT COALESCE(MAX(version), 0) FROM {table}_version`)).Scan(&version)
	if err != nil {
		return err
	}
	if version > len(steps) {
		return fmt.Errorf("its version %d is newer than the %d that this SDK knows: use a newer SDK", version, len(steps))
	}
	for ; version < len(steps); version++ {
		note := fmt.Sprintf(`INSERT INTO {table}_version (version) VALUES (%d)`, version+1)
		if err := s.runAll(ctx, conn, append(steps[version], note)...); err != nil {
			return fmt.Errorf("step %d: %w", version+1, err)
		}
	}
	return nil
}

func (s *Store) runAll(ctx context.Context, conn *sql.Conn, statements ...string) error {
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, s.names.Replace(statement)); err != nil {
			return err
		}
	}
	return nil
}

// steps reads the dialect's files in the order of their names; each is one step of statements that end with a semicolon
// at the end of a line. A step for MySQL, where a CREATE or ALTER cannot be undone, is a single statement.
func (s *Store) steps(from fs.FS) ([][]string, error) {
	names, err := fs.Glob(from, "ddl/"+s.dialect.name+"/*.sql")
	if err != nil {
		return nil, err
	}
	steps := make([][]string, 0, len(names))
	index := s.config.Table[strings.LastIndex(s.config.Table, ".")+1:]
	for _, name := range names {
		text, err := fs.ReadFile(from, name)
		if err != nil {
			return nil, err
		}
		whole := strings.ReplaceAll(s.names.Replace(string(text)), "{index}", index)
		whole = strings.TrimSuffix(strings.TrimSpace(whole), ";")
		steps = append(steps, strings.Split(whole, ";\n"))
	}
	return steps, nil
}
