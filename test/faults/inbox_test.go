package faults

import (
	"context"
	"database/sql"
	"sync"
	"testing"
	"time"

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
func consume(w *world, queue string, declare *consumer.Declare) {
	w.t.Helper()
	for range 2 {
		consumeOne(w, queue, declare)
	}
}

func consumeOne(w *world, queue string, declare *consumer.Declare) {
	w.t.Helper()
	effect := consumer.Handler(consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return nil }))
	if !w.options.bare {
		effect = w.keepEffects().handler(func(context.Context) {})
	}
	ready := make(chan struct{})
	var once sync.Once
	c, err := consumer.New(consumer.Config{
		URL: w.broker.URL, Queue: queue, Declare: declare, Prefetch: 100, Logger: quiet(),
		Consuming: func() { once.Do(func() { close(ready) }) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = c.Run(ctx, consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
			content := NewContent(m.Exchange, m.RoutingKey, m.Headers, m.Body)
			w.got(m.Key(), Copy{Content: content, Attempt: m.Attempt, Redelivered: m.Redelivered})
			if isLast(m.Key()) {
				return nil
			}
			return effect.Handle(ctx, m)
		}))
	})
	w.t.Cleanup(func() { cancel(); running.Wait() })
	select {
	case <-ready:
	case <-time.After(patience):
		w.t.Fatal("the consumer does not consume")
	}
	w.consumed(queue, 1)
}
