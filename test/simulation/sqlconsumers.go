package simulation

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	consumersdk "github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
)

// effectQueue gets a copy of each message, beside the queue of the consumer that has no database.
const effectQueue = "simulation.effects"

// effectTable does not forbid that a message has its effect twice.
const effectTable = `CREATE TABLE effects (
  number TEXT NOT NULL DEFAULT gen_random_uuid()::TEXT,
  message TEXT NOT NULL,
  PRIMARY KEY (number)
)`

// effects is a consumer with an inbox: the effect of a message is a row in the transaction of the message's inbox row.
type effects struct {
	data    *sqlDatabase
	process *sqlProcess
	handler consumersdk.Handler
	host    *Host
	over    chan struct{}
}

// startEffects consumes until the world ends.
func startEffects(w *World) (*effects, error) {
	e := &effects{host: w.Network.Host("effects", "10.3.0.2"), over: make(chan struct{})}
	var err error
	if e.data, err = w.newSQLDatabase("database of effects", statement(effectTable), e.migrate); err != nil {
		return nil, err
	}
	e.data.effects = true
	e.process = e.data.openPool()
	inbox, err := e.inbox(e.process.db, slog.New(w.log.handler("effects")))
	if err != nil {
		return nil, err
	}
	e.handler = inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumersdk.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (message) VALUES ($1)", m.Producer+"/"+m.ID)
		return err
	})
	go func() {
		defer close(e.over)
		for w.life.Err() == nil {
			if err := e.session(); err != nil {
				_ = sleep(w.life, 200*time.Millisecond)
			}
		}
	}()
	return e, nil
}

func (e *effects) inbox(db *sql.DB, logger *slog.Logger) (*sqlinbox.Inbox, error) {
	return sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "effects", Logger: logger})
}

func (e *effects) migrate(ctx context.Context, db *sql.DB) error {
	inbox, err := e.inbox(db, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	return inbox.Migrate(ctx)
}

func (e *effects) close() {
	<-e.over
	e.process.close()
}

// session consumes on one connection until the connection ends, or the world does. Two deliveries are handled at once.
func (e *effects) session() error {
	return e.data.world.consume(e.host, effectQueue, func(d amqp.Delivery) error {
		m := &consumersdk.Message{Producer: d.AppId, ID: d.MessageId, Body: d.Body, RoutingKey: d.RoutingKey}
		err := e.handler.Handle(e.data.world.life, m)
		if err == nil || errors.Is(err, consumersdk.ErrDuplicate) {
			return d.Ack(false)
		}
		e.data.world.note("the effect of %s/%s fails: %v", d.AppId, d.MessageId, err)
		if err := sleep(e.data.world.life, time.Second); err != nil {
			return err
		}
		return d.Nack(false, true)
	})
}

// counts is how often each message had its effect.
func (e *effects) counts() map[string]int {
	counts := map[string]int{}
	for _, row := range e.data.rows("SELECT message FROM effects") {
		counts[textOf(row[0])]++
	}
	return counts
}
