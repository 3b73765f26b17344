package sqloutbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

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
	// Refused are some of the oldest waiting messages that were refused: mostRefused at most.
	Refused []sqlmarker.Failure
	// Stranger is a producer with a waiting message whom the caller does not know; empty: none.
	Stranger string
	// Unknown is a broker that a waiting message names and the coordinator does not know; empty: none.
	Unknown string
	// Galera: the server is a node of a Galera cluster.
	Galera bool
}

// errTableMissing says in plain words what the database says with a code.
var errTableMissing = errors.New("the table does not exist")

// mostRefused bounds how many refused messages an examination counts: no operator needs a larger number. The
// examination reads no more than refusedOldest waiting messages, and so ends in time during an outage.
const (
	mostRefused   = 1000
	refusedOldest = 10_000
)

// shownFailures is how many failed messages an examination names.
const shownFailures = 3

// Examination says what is known to a coordinator that relays an outbox.
type Examination struct {
	// Producers are those that are relayed from this table or another, and Brokers those of the configuration.
	Producers, Brokers []string
	// Handshake gets the state of TLS of each connection to the database. May be nil.
	Handshake Handshakes
}

// Examine connects to the database of an outbox and looks at its table, and at the rights of the user.
func Examine(ctx context.Context, name string, settings config.Outbox, e Examination) (h Health, err error) {
	d, table, err := openTable(name, settings, e.Handshake)
	if err != nil {
		return Health{}, err
	}
	defer d.Close()
	h.Database = d.dialect.String()
	if h.Backlog, err = table.Backlog(ctx); err == nil {
		h.Failures, err = table.Failures(ctx, shownFailures)
	}
	if err == nil {
		h.Refused, err = table.Refused(ctx, refusedOldest, mostRefused)
	}
	if err == nil {
		err = d.checkRights(ctx, settings.Table)
	}
	if err == nil {
		h.Stranger, err = d.other(ctx, "producer", settings.Table, e.Producers)
	}
	if err == nil {
		h.Unknown, err = d.other(ctx, "broker", settings.Table, append(e.Brokers, ""))
	}
	if err == nil {
		h.Galera, err = d.isGalera(ctx)
	}
	if d.dialect.Traits().Missing(err) {
		err = errors.Join(errTableMissing, err)
	}
	return h, err
}

// checkRights fails where a relay could not claim or purge rows: without the rights, and on a read-only standby.
func (d *database) checkRights(ctx context.Context, table string) error {
	for _, statement := range []string{"UPDATE " + table + " SET state = state", "DELETE FROM " + table} {
		if _, err := d.ExecContext(ctx, statement+" WHERE 1 = 0"); err != nil {
			return fmt.Errorf("rows can be read, and not changed: %w", err)
		}
	}
	return nil
}

// isGalera reads a setting that servers without Galera do not have.
func (d *database) isGalera(ctx context.Context) (bool, error) {
	if d.dialect != sqlmarker.MySQL {
		return false, nil
	}
	var name, value string
	err := d.QueryRowContext(ctx, "SHOW GLOBAL VARIABLES LIKE 'wsrep_on'").Scan(&name, &value)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return value == "ON", err
}

// other finds a name in a column of a waiting row that is none of the names. Names are plain.
func (d *database) other(ctx context.Context, column, table string, names []string) (name string, err error) {
	err = d.QueryRowContext(ctx, "SELECT "+column+" FROM "+table+" WHERE state = 1 AND "+column+" NOT IN ('"+
		strings.Join(names, "', '")+"') LIMIT 1").Scan(&name)
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return name, err
}

// mostUnrelayed bounds how many rows Unrelayed counts: the number says that rows wait, and no operator needs more.
const mostUnrelayed = 10_000

// Unrelayed counts the waiting rows of the table whose producer is none of the producers, by producer: no relay of the
// caller reads them.
func (o *Outbox) Unrelayed(ctx context.Context, producers []string) (map[string]int64, error) {
	counts := map[string]int64{}
	rows, err := o.database.QueryContext(ctx, fmt.Sprintf("SELECT producer, COUNT(*) FROM (SELECT producer FROM %s "+
		"WHERE state = 1 AND producer NOT IN ('%s') LIMIT %d) waiting GROUP BY producer", o.config.Settings.Table,
		strings.Join(producers, "', '"), mostUnrelayed))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var producer string
		var count int64
		if err := rows.Scan(&producer, &count); err != nil {
			return nil, err
		}
		counts[producer] = count
	}
	return counts, rows.Err()
}

// Migrate creates the table of an outbox. Without a name the DSN is that of a flag.
func Migrate(ctx context.Context, name string, settings config.Outbox) error {
	d, table, err := openTable(name, settings, nil)
	if err != nil {
		return err
	}
	defer d.Close()
	return table.Migrate(ctx)
}

func openTable(name string, settings config.Outbox, seen Handshakes) (*database, *sqlmarker.Outbox, error) {
	d, err := open(name, func() string { return settings.DSN }, seen)
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
