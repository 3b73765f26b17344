package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
)

// Messages with the consumer count as well as those that wait in the stream; others of the stream do not.
func TestObserverGetsDepths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(numbered(10)...)
	if _, err := w.js.Publish(t.Context(), "orders.cancelled", nil); err != nil {
		t.Fatal(err)
	}
	o := &consumertest.Depths{}
	config := w.config()
	config.Subjects, config.Prefetch = []string{"orders.paid"}, 2
	config.Observer, config.DepthInterval = o, 20*time.Millisecond
	release := make(chan struct{})
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		<-release
		if m.ID == "3" || m.ID == "4" {
			return consumer.Reject(errors.New("no JSON"))
		}
		return nil
	})
	o.AwaitWaiting(t, "ORDERS", 10)
	o.AwaitDead(t, "DEAD", 0)
	close(release)
	o.AwaitWaiting(t, "ORDERS", 0)
	o.AwaitDead(t, "DEAD", 2)
	if n, err := w.deadLetters().Discard(t.Context(), "orders/3"); n != 1 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	o.AwaitWaiting(t, "ORDERS", 0)
	o.AwaitDead(t, "DEAD", 1)
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestNegativeDepthIntervalIsRefused(t *testing.T) {
	t.Parallel()
	_, err := natsconsumer.New(natsconsumer.Config{URL: "nats://h", Stream: "S", Name: "n", DepthInterval: -1})
	if err == nil || !strings.Contains(err.Error(), "DepthInterval is negative") {
		t.Error(err)
	}
}
