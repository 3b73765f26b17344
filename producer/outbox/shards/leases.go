package shards

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/ground/sqldb"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

//go:embed ddl
var ddl embed.FS

// Defaults of LeasesConfig.
const (
	DefaultTable = "msghandler_shard_leases"
	DefaultLease = 15 * time.Second
)

// maxOwner is how long an owner's name may be, in bytes.
const maxOwner = 200

// LeasesConfig says where the leases are. DB, Dialect and Producer must be given.
type LeasesConfig struct {
	// DB is a database that all relays of the producer share; the caller closes DB.
	DB *sql.DB
	// Dialect is the kind of database of DB.
	Dialect sqlmarker.Dialect
	// Producer is the producer's name.
	Producer string
	// Table is the table's name, optionally with a schema, except on SQLite. Default: DefaultTable.
	Table string
	// Owner names this relay, and no other. Default: host, process and a random part.
	Owner string
	// Lease is how long a relay has its shards without renewing them, and so how long the shards of a dead relay wait.
	// Leases are renewed three times in this time. Default: DefaultLease.
	Lease time.Duration
	// Logger gets a line for each change of this relay's shards, and warnings. Default: slog.Default().
	Logger *slog.Logger
}

// Leases divides shards among relays by rows of a table. A Leases belongs to one relay.
type Leases struct {
	config LeasesConfig
	table  *sqldb.Table
	// listed: the rows of the shards are there.
	listed bool
}

// NewLeases returns leases, or an error for a configuration that cannot work. NewLeases makes no call to the database.
func NewLeases(config LeasesConfig) (*Leases, error) {
	config.Table = cmp.Or(config.Table, DefaultTable)
	config.Lease = cmp.Or(config.Lease, DefaultLease)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	host, _ := os.Hostname() // only for people
	config.Owner = cmp.Or(config.Owner, fmt.Sprintf("%.100s/%d/%s", host, os.Getpid(), rand.Text()[:6]))
	badTable := sqldb.CheckName(config.Dialect, config.Table)
	switch {
	case config.DB == nil:
		return nil, errors.New("shards.LeasesConfig: DB is missing; give a database that all relays share")
	case config.Dialect.Traits() == nil:
		return nil, errors.New("shards.LeasesConfig: Dialect is missing; give PostgreSQL, MySQL or SQLite")
	case config.Producer == "" || len(config.Producer) > 100:
		return nil, errors.New("shards.LeasesConfig: Producer must have 1 to 100 bytes")
	case badTable != nil:
		return nil, fmt.Errorf("shards.LeasesConfig: Table: %w", badTable)
	case len(config.Owner) > maxOwner:
		return nil, fmt.Errorf("shards.LeasesConfig: Owner is over %d bytes", maxOwner)
	case config.Lease < 100*time.Millisecond:
		return nil, fmt.Errorf("shards.LeasesConfig: Lease of %v is too short", config.Lease)
	}
	return &Leases{config: config, table: sqldb.NewTable(config.DB, config.Dialect, config.Table, ddl)}, nil
}

// DDL returns the statements by which Migrate creates the table, for deployments that create tables themselves.
func (l *Leases) DDL() ([]string, error) { return l.table.DDL() }

// Migrate creates the table of leases. Call Migrate at every start, also from several processes at once; a table that
// is there is not changed. Migrate fails for a table that lacks a column or its primary key.
func (l *Leases) Migrate(ctx context.Context) error { return l.table.Migrate(ctx) }

// exec runs a statement and returns the number of changed rows.
func (l *Leases) exec(ctx context.Context, statement string, args ...any) (int64, error) {
	result, err := l.config.DB.ExecContext(ctx, l.table.Query(statement), args...)
	if err != nil {
		l.table.LeaveReadOnly(ctx, err)
		return 0, err
	}
	return result.RowsAffected()
}

// lease is the state of a shard.
type lease struct {
	shard int
	mine  bool
	free  bool
}

// round renews this relay's row and leases, gives back or takes shards up to this relay's share, and returns the shards
// that the relay has and the number of relays. keep is called with the rest before shards are given back. Each
// statement is a transaction, so that rounds never deadlock. A round ends within the time of a lease.
func (l *Leases) round(ctx context.Context, shards int, keep func([]int)) (held []int, relays int, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.config.Lease)
	defer cancel()
	if err := l.renew(ctx, shards); err != nil {
		return nil, 0, fmt.Errorf("renew leases: %w", err)
	}
	place, relays, err := l.place(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("count relays: %w", err)
	}
	all, err := l.leases(ctx, shards)
	if err != nil {
		return nil, 0, fmt.Errorf("read leases: %w", err)
	}
	for _, lease := range all {
		if lease.mine {
			held = append(held, lease.shard)
		}
	}
	share := shareOf(place, relays, shards)
	if len(held) > share {
		keep(held[:share])
	}
	if held, err = l.giveBack(ctx, held, share); err != nil {
		return nil, 0, fmt.Errorf("give shards back: %w", err)
	}
	if held, err = l.takeFree(ctx, all, held, share); err != nil {
		return nil, 0, fmt.Errorf("take shards: %w", err)
	}
	return held, relays, nil
}

// shareOf is how many shards the relay at a place among all relays has. The shares add up to all shards.
func shareOf(place, relays, shards int) int {
	share := shards / relays
	if place < shards%relays {
		share++
	}
	return share
}

// renew writes the row of this relay, renews its leases, and in the first round lists the shards.
func (l *Leases) renew(ctx context.Context, shards int) error {
	const insert = `INSERT INTO {table} (producer, name, shard_id, until_at, created_at)
		VALUES (?, ?, ?, {now} + ?, {now})`
	for shard := 0; shard < shards && !l.listed; shard++ {
		_, err := l.table.InsertNew(ctx, l.config.DB, insert, l.config.Producer, shardName(shard), shard, 0)
		if err != nil {
			return err
		}
	}
	l.listed = true
	ms := l.config.Lease.Milliseconds()
	_, err := l.table.InsertNew(ctx, l.config.DB, insert, l.config.Producer, l.relayName(), nil, ms)
	if err != nil {
		return err
	}
	_, err = l.exec(ctx, `UPDATE {table} SET until_at = {now} + ? WHERE producer = ? AND (name = ? OR owner = ?)`,
		ms, l.config.Producer, l.relayName(), l.config.Owner)
	return err
}

func shardName(shard int) string { return fmt.Sprint("shard/", shard) }

func (l *Leases) relayName() string { return "relay/" + l.config.Owner }

// place returns the place of this relay among the living relays, in the order of their names, and removes the rows of
// relays that died long ago.
func (l *Leases) place(ctx context.Context) (place, relays int, err error) {
	const long = 100
	_, err = l.exec(ctx, `DELETE FROM {table} WHERE producer = ? AND shard_id IS NULL AND until_at < {now} - ?`,
		l.config.Producer, long*l.config.Lease.Milliseconds())
	if err != nil {
		return 0, 0, err
	}
	rows, err := l.config.DB.QueryContext(ctx, l.table.Query(`SELECT name FROM {table}
		WHERE producer = ? AND shard_id IS NULL AND (until_at > {now} OR name = ?) ORDER BY name`),
		l.config.Producer, l.relayName())
	if err != nil {
		return 0, 0, err
	}
	defer rows.Close()
	for ; rows.Next(); relays++ {
		var name []byte
		if err := rows.Scan(&name); err != nil {
			return 0, 0, err
		}
		if string(name) == l.relayName() {
			place = relays
		}
	}
	if relays == 0 && rows.Err() == nil {
		return 0, 0, errors.New("the row of this relay was removed")
	}
	return place, relays, rows.Err()
}

// leases reads the shards.
func (l *Leases) leases(ctx context.Context, shards int) (all []lease, err error) {
	rows, err := l.config.DB.QueryContext(ctx, l.table.Query(`SELECT shard_id, owner,
		CASE WHEN owner IS NULL OR until_at <= {now} THEN 1 ELSE 0 END FROM {table}
		WHERE producer = ? AND shard_id < ? ORDER BY shard_id`), l.config.Producer, shards)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var is lease
		var owner []byte
		var free int
		if err := rows.Scan(&is.shard, &owner, &free); err != nil {
			return nil, err
		}
		is.mine = string(owner) == l.config.Owner
		is.free = free == 1 && !is.mine
		all = append(all, is)
	}
	return all, rows.Err()
}

// giveBack frees the shards above this relay's share.
func (l *Leases) giveBack(ctx context.Context, held []int, share int) ([]int, error) {
	for len(held) > share {
		last := len(held) - 1
		_, err := l.exec(ctx, `UPDATE {table} SET owner = NULL, until_at = {now}
			WHERE producer = ? AND name = ? AND owner = ?`,
			l.config.Producer, shardName(held[last]), l.config.Owner)
		if err != nil {
			return nil, err
		}
		held = held[:last]
	}
	return held, nil
}

// takeFree takes free shards up to this relay's share. The UPDATE repeats the condition, so of two relays one has the
// shard.
func (l *Leases) takeFree(ctx context.Context, all []lease, held []int, share int) ([]int, error) {
	for _, lease := range all {
		if !lease.free || len(held) >= share {
			continue
		}
		taken, err := l.exec(ctx, `UPDATE {table} SET owner = ?, until_at = {now} + ?, epoch = epoch + 1
			WHERE producer = ? AND name = ? AND (owner IS NULL OR until_at <= {now})`,
			l.config.Owner, l.config.Lease.Milliseconds(), l.config.Producer, shardName(lease.shard))
		if err != nil {
			return nil, err
		}
		if taken == 1 {
			held = append(held, lease.shard)
		}
	}
	slices.Sort(held)
	return held, nil
}

// leave gives all shards back, and removes the row of this relay.
func (l *Leases) leave(ctx context.Context) error {
	_, err := l.exec(ctx, `UPDATE {table} SET owner = NULL, until_at = {now} WHERE producer = ? AND owner = ?`,
		l.config.Producer, l.config.Owner)
	_, gone := l.exec(ctx, `DELETE FROM {table} WHERE producer = ? AND name = ?`, l.config.Producer, l.relayName())
	return errors.Join(err, gone)
}
