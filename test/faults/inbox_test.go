package faults

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
)

// effectsTable records the effects in the consumers' database: a row for each effect of a message, in one transaction
// with its row in the inbox.
type effectsTable struct {
	database database
	db       *sql.DB
	inbox    *sqlinbox.Inbox
}

// effectWithin is how long after its first copy a message may have its effect at the latest, also after a failed
// first try.
const effectWithin = 20 * time.Second

func openEffects(ctx context.Context, d database) (*effectsTable, error) {
	db, err := d.open(ctx, effectTable)
	if err != nil {
		return nil, err
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: d.Dialect, Consumer: "faults"})
	if err == nil {
		err = inbox.Migrate(ctx)
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return &effectsTable{d, db, inbox}, nil
}

// keepEffects gives the world's consumers a database, until the test ends.
func (w *world) keepEffects() *effectsTable {
	w.t.Helper()
	if w.effects == nil {
		var err error
		w.effects, err = openEffects(w.t.Context(), newPostgreSQL(w.t))
		w.must(err)
		w.t.Cleanup(func() { w.effects.db.Close() })
	}
	return w.effects
}

// handler lets a message have its effect. inside is called in its transaction.
func (e *effectsTable) handler(inside func(ctx context.Context)) consumer.Handler {
	return e.inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
		inside(ctx)
		_, err := tx.ExecContext(ctx, e.database.says(insertEffect), m.Key())
		return err
	})
}

// had counts the effects of each message, once all deliveries had their effect or the time for it.
func (e *effectsTable) had(t *testing.T, l *Ledger) (times map[string]int) {
	t.Helper()
	for deadline := time.Now().Add(effectWithin); ; wait(100 * time.Millisecond) {
		var err error
		if times, err = counts(t.Context(), e.db, `SELECT message, COUNT(*) FROM effects GROUP BY message`); err != nil {
			t.Fatal(err)
		}
		if len(times) >= l.DeliveredIDs() || time.Now().After(deadline) {
			return times
		}
	}
}

// consume starts two consumers of a queue, which note every copy until the test ends, and let each message have its
// effect once.
func consume(w *world, queue string, declare *rabbitmqconsumer.Declare) {
	w.t.Helper()
	for range 2 {
		consumeOne(w, queue, declare)
	}
}

func consumeOne(w *world, queue string, declare *rabbitmqconsumer.Declare) (stop func()) {
	w.t.Helper()
	handler := w.noting(w.effect())
	end := w.runs(1, func(consuming func()) (func(context.Context) error, error) {
		c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
			URL: w.broker.URL, Queue: queue, Declare: declare, Prefetch: 100, Logger: quiet(), Consuming: consuming,
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error { return c.Run(ctx, handler) }, nil
	})
	w.consumed(queue, 1)
	return func() {
		end()
		w.consumed(queue, -1)
	}
}

// effect is the consumers' business.
func (w *world) effect() consumer.Handler {
	w.t.Helper()
	if w.options.bare {
		return consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil })
	}
	return w.keepEffects().handler(func(context.Context) {})
}
