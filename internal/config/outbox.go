package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/sqldb"
)

// Outbox is a database whose outbox of plain SQL is relayed.
type Outbox struct {
	// DSN is the URL of the database.
	DSN string `key:"dsn" check:"DSN" secret:"yes"`
	// Producer is whose messages are relayed.
	Producer string `key:"producer" check:"producer"`
	// Table is the table's name, optionally with a schema.
	Table string `key:"table" default:"msghandler_outbox" check:"table"`
	// Shards is the number of shards that the writers of messages use.
	Shards int `key:"shards" default:"1" bounds:"1 1024"`
	// Poll is how often the table is read when no notification comes.
	Poll time.Duration `key:"poll" default:"5s" bounds:"50ms 1h"`
	// Workers is how many relays of this coordinator claim at once for each broker.
	Workers int `key:"workers" default:"1" bounds:"1 64"`
}

// checkDSN quotes nothing of the URL, which may hold a password.
func checkDSN(s string) error {
	_, err := address.ParseSQL(s)
	return err
}

func checkOutboxProducer(s string) error {
	if !isName(s, 100) {
		return errors.New("names no producer: a name has 1 to 100 of A-Z a-z 0-9 . _ -")
	}
	return nil
}

// checkTable accepts TABLE or SCHEMA.TABLE of plain names, as the SDK does.
func checkTable(s string) error {
	if err := sqldb.CheckName(sqldb.PostgreSQL, s); err != nil {
		return fmt.Errorf("names no table: %w; write TABLE or SCHEMA.TABLE of letters, digits and _", err)
	}
	return nil
}

// OutboxNames are the names of the outboxes, sorted.
func (c *Config) OutboxNames() []string { return slices.Sorted(maps.Keys(c.Outbox)) }

// checkOutbox refuses an outbox without an address, without a producer, or with the producer of another: each table
// gives out ids by itself, and consumers and brokers drop the second message of PRODUCER/ID.
func (l *loading) checkOutbox() {
	of := map[string]string{}
	for _, name := range l.config.OutboxNames() {
		o, key := l.config.Outbox[name], "outbox."+name
		if o.DSN == "" {
			l.relation(key+".dsn", "is missing: set %s.dsn or %s.dsn_file to where the database is", key, key)
		}
		if o.Producer == "" {
			l.relation(key+".producer", "is missing: set %s.producer to the name whose messages the table holds", key)
		} else if first, twice := of[o.Producer]; twice {
			l.relation(key+".producer", "is that of outbox.%s: consumers take two rows with one id for copies; "+
				"give each table a producer of its own", first)
		}
		of[o.Producer] = name
	}
}
