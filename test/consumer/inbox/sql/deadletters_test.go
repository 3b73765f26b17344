package sql_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// consumePoison runs a consumer with its own dead letters until the test ends, and returns when consuming begins.
func consumePoison(t *testing.T, url string, h consumer.Handler) {
	t.Helper()
	consuming := make(chan struct{})
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: url, Queue: "poisoned", Logger: slog.New(slog.DiscardHandler),
		Declare: &rabbitmqconsumer.Declare{
			Exchange: "orders", DeadLetterExchange: "poison", Delays: []time.Duration{20 * time.Millisecond},
		},
		Consuming: sync.OnceFunc(func() { close(consuming) }),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx, h); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	<-consuming
}

// A message that fails up to the limit leaves nothing in the database, and its replay after the fix has its effect.
// Two letters of an order, as after an interrupted replay, have one effect.
func TestReplayedPoisonHasOneEffect(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		vhost, publish := broker(t)
		var fixed atomic.Bool
		var effects, duplicates atomic.Int32
		once := d.inbox(t, db, nil).Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
			if err := d.pay(ctx, tx, m); err != nil || fixed.Load() {
				return err
			}
			return errors.New("a fault in the effect")
		})
		consumePoison(t, vhost.URL, consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
			err := once.Handle(ctx, m)
			switch {
			case err == nil:
				effects.Add(1)
			case errors.Is(err, consumer.ErrDuplicate):
				duplicates.Add(1)
			}
			return err
		}))
		publish("twice", "once", "twice")
		dead, err := rabbitmqconsumer.NewDeadLetters(vhost.URL, nil, "poisoned.dead")
		if err != nil {
			t.Fatal(err)
		}
		var letters []consumer.Letter
		servers.Eventually(t, time.Minute, "three dead letters", func() bool {
			letters, err = dead.List(t.Context(), 10)
			return err == nil && len(letters) == 3
		})
		for _, l := range letters {
			if l.Retries != 1 || l.FirstCause != "a fault in the effect" || l.Reason != l.FirstCause {
				t.Errorf("%+v of %+v", l, l.Message)
			}
		}
		if n := payments(t, db); n != 0 {
			t.Errorf("what failed left %d effects", n)
		}
		fixed.Store(true)
		replayed := 0
		servers.Eventually(t, time.Minute, "three are replayed", func() bool { // a look gives back a moment later
			n, err := dead.Replay(t.Context(), consumer.Anywhere)
			if err != nil {
				t.Fatal(err)
			}
			replayed += n
			return replayed == 3
		})
		servers.Eventually(t, time.Minute, "all are handled", func() bool { return effects.Load()+duplicates.Load() == 3 })
		if effects.Load() != 2 || duplicates.Load() != 1 {
			t.Errorf("%d effects and %d duplicates, want 2 and 1", effects.Load(), duplicates.Load())
		}
		onceEach(t, db, 2)
	})
}
