package sqloutbox

import (
	"context"
	"errors"

	"github.com/msghandler/msghandler/internal/config"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// Health is what an examination has found.
type Health struct {
	// Database is postgresql or mysql.
	Database string
	Backlog  sqlmarker.Backlog
	// Failures are some of the failed messages.
	Failures []sqlmarker.Failure
}

// ErrTableMissing is the error of a database without a table of that name.
var ErrTableMissing = errors.New("the table does not exist")

// shownFailures is how many failed messages an examination names.
const shownFailures = 3

// Examine connects to the database of an outbox and looks at its table. The error wraps ErrTableMissing when the
// database answers.
func Examine(ctx context.Context, name string, settings config.Outbox) (h Health, err error) {
	d, table, err := openTable(name, settings)
	if err != nil {
		return Health{}, err
	}
	defer d.Close()
	h.Database = d.dialect.String()
	if h.Backlog, err = table.Backlog(ctx); err == nil {
		h.Failures, err = table.Failures(ctx, shownFailures)
	}
	if tableMissing(err) {
		err = errors.Join(ErrTableMissing, err)
	}
	return h, err
}

// Migrate creates the table of an outbox, or upgrades the table to this version. Without a name the DSN is that of a
// flag.
func Migrate(ctx context.Context, name string, settings config.Outbox) error {
	d, table, err := openTable(name, settings)
	if err != nil {
		return err
	}
	defer d.Close()
	return table.Migrate(ctx)
}

func openTable(name string, settings config.Outbox) (*database, *sqlmarker.Outbox, error) {
	d, err := open(name, settings)
	if err != nil {
		return nil, nil, err
	}
	table, err := sqlmarker.NewOutbox(sqlmarker.OutboxConfig{
		DB: d.DB, Dialect: d.dialect, Producer: settings.Producer, Table: settings.Table, Shards: settings.Shards,
	})
	if err != nil {
		return nil, nil, errors.Join(err, d.Close())
	}
	return d, table, nil
}
