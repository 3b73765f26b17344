package nats_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
)

// The database of the handler is away for longer than all deliveries take. No message is at fault.
func TestTransientTroubleBuriesNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("1", "2")
	var handled calls
	var retried retries
	config := w.config()
	config.Observer = &retried
	w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.add(m.ID)
		if m.Deliveries > 0 {
			t.Errorf("%s was delivered again", m.ID)
		}
		if m.ID == "1" && handled.count("1") < 10 {
			return consumer.Transient(errors.New("the database is away"))
		}
		return nil
	})
	w.settled()
	handled.want(t, []string{"1"}, 10)
	w.wantDead()
	if n := retried.Load(); n != 9 {
		t.Errorf("%d handlings were observed as retried, want 9", n)
	}
}

// retries counts the handlings that are repeated.
type retries struct{ atomic.Int32 }

func (*retries) Begun(string)            {}
func (*retries) Depth(string, int)       {}
func (*retries) DeadLetters(string, int) {}

func (r *retries) Ended(_ string, result consumer.Result, _ time.Duration) {
	if result == consumer.Retried {
		r.Add(1)
	}
}
