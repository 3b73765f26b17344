package systems

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"sync"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqoutbox"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// half is msghandler with half messages and markers in the transaction. All settings are the defaults. The producer
// attends, so that the service serves no port.
var half = Kind{
	Name: "half", Title: "msghandler, half message", Coordinator: true,
	Setup: func(ctx context.Context, c Config) error { return migrate(ctx, c, halfTable) },
	Open:  openHalf,
	// The waiting messages are in Redis.
	Waiting: `SELECT 0`,
	Fate:    `SELECT 'marker: ' || state FROM ` + halfTable + ` WHERE convert_from(id, 'UTF8') = $1`,
}

const (
	halfTable  = "half_markers"
	relayTable = "relay_messages"
)

func migrate(ctx context.Context, c Config, table string) error {
	return withSQL(c.Database, func(db *sql.DB) error {
		markers, err := newMarkers(db, table)
		if err != nil {
			return err
		}
		return markers.Migrate(ctx)
	})
}

func newMarkers(db *sql.DB, table string) (*sqlmarker.Store, error) {
	return sqlmarker.New(sqlmarker.Config{
		DB: db, Dialect: sqlmarker.PostgreSQL, Producer: Producer, Table: table, Logger: quiet,
	})
}

// quiet drops log lines: an outage of the broker is part of the comparison.
var quiet = slog.New(slog.DiscardHandler)

func message(o Order) producer.Message {
	return producer.Message{
		ID: o.ID(), RoutingKey: o.RoutingKey, Body: o.Body, ContentType: "application/json",
	}
}

type halfSystem struct {
	db       *sql.DB
	markers  *sqlmarker.Store
	producer *producer.Producer
}

func openHalf(_ context.Context, c Config) (System, error) {
	db, err := openSQL(c.Database)
	if err != nil {
		return nil, err
	}
	s := &halfSystem{db: db}
	if s.markers, err = newMarkers(db, halfTable); err != nil {
		return nil, err
	}
	s.producer, err = producer.New(producer.Config{
		Name: Producer, Coordinator: c.Coordinator, Markers: s.markers, Logger: quiet,
	})
	return s, err
}

func (s *halfSystem) Commit(ctx context.Context, o Order) error {
	return s.markers.Send(ctx, s.producer, message(o), insertOrder(o))
}

func (s *halfSystem) Close() {
	_ = s.producer.Close(context.Background()) // an error names messages that the coordinator asks about
	_ = s.db.Close()
}

// plain is the outbox in plain SQL, which the coordinator relays. As docs/howto/sql-outbox.md advises a service with
// thousands of commits a second, the trigger is dropped and the coordinator polls; 50 ms is the shortest interval.
var plain = plainKind("plain", "msghandler, outbox in plain SQL, polled", "DROP TRIGGER %[1]s_notify ON %[1]s",
	"POLL=50ms", "WORKERS=2")

// notified is the same as `msghandler outbox migrate` makes it: each commit notifies the coordinator. All settings are
// the defaults.
var notified = plainKind("notified", "msghandler, outbox in plain SQL, notified", "")

// plainKind is an outbox in plain SQL, with a statement after the creation of the table, and further settings.
func plainKind(name, title, statement string, settings ...string) Kind {
	table := "outbox_" + name
	return Kind{
		Name: name, Title: title, Coordinator: true,
		Outbox: append([]string{"TABLE=" + table, "PRODUCER=" + Producer}, settings...),
		Setup:  func(ctx context.Context, c Config) error { return setupPlain(ctx, c, table, statement) },
		Open: func(_ context.Context, c Config) (System, error) {
			db, err := openSQL(c.Database)
			return plainSystem{db, "INSERT INTO " + table + " (id, routing_key, body) VALUES ($1, $2, $3)"}, err
		},
		Waiting: `SELECT count(*) FROM ` + table + ` WHERE state = 1`,
		Fate: `SELECT 'state ' || state || ', attempts ' || attempts || ', ' || coalesce(last_error, '') FROM ` +
			table + ` WHERE id = $1`,
	}
}

func setupPlain(ctx context.Context, c Config, table, statement string) error {
	statements, err := sqlmarker.OutboxDDL(sqlmarker.PostgreSQL, Producer, table)
	if err != nil {
		return err
	}
	if statement != "" {
		statements = append(statements, fmt.Sprintf(statement, table))
	}
	return withSQL(c.Database, func(db *sql.DB) error {
		for _, statement := range statements {
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

type plainSystem struct {
	db     *sql.DB
	insert string
}

func (s plainSystem) Commit(ctx context.Context, o Order) error {
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing after a commit
	if err := insertOrder(o)(ctx, tx); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, s.insert, o.ID(), o.RoutingKey, string(o.Body)); err != nil {
		return err
	}
	return tx.Commit()
}

func (s plainSystem) Close() { _ = s.db.Close() }

// relay is msghandler's outbox without a coordinator: the service relays its own table to RabbitMQ. All settings are
// the defaults.
var relay = Kind{
	Name: "relay", Title: "producer/outbox, relay in the service",
	Setup:   func(ctx context.Context, c Config) error { return migrate(ctx, c, relayTable) },
	Open:    openRelay,
	Waiting: `SELECT count(*) FROM ` + relayTable + ` WHERE state IN (1, 2)`,
	Fate: `SELECT 'state ' || state || ', attempts ' || attempts || ', ' || coalesce(last_error, '') FROM ` +
		relayTable + ` WHERE convert_from(id, 'UTF8') = $1`,
}

type relaySystem struct {
	db      *sql.DB
	markers *sqlmarker.Store
	sender  *rabbitmqoutbox.Sender
	end     context.CancelFunc
	work    sync.WaitGroup
}

func openRelay(ctx context.Context, c Config) (System, error) {
	db, err := openSQL(c.Database)
	if err != nil {
		return nil, err
	}
	s := &relaySystem{db: db}
	if s.markers, err = newMarkers(db, relayTable); err != nil {
		return nil, err
	}
	if s.sender, err = rabbitmqoutbox.New(rabbitmqoutbox.Config{URL: c.Broker, Producer: Producer}); err != nil {
		return nil, err
	}
	r, err := outbox.New(outbox.Config{Table: s.markers, Sender: s.sender, Logger: quiet})
	if err != nil {
		return nil, err
	}
	ctx, s.end = context.WithCancel(ctx)
	s.work.Go(func() { r.Run(ctx) })
	return s, nil
}

func (s *relaySystem) Commit(ctx context.Context, o Order) error {
	return s.markers.Commit(ctx, message(o), insertOrder(o))
}

func (s *relaySystem) Close() {
	s.end()
	s.work.Wait()
	s.sender.Close()
	_ = s.db.Close()
}
