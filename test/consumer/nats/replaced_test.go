package nats_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/servers"
)

// A copy is handled elsewhere for long, and three processes find the other copy busy again and again. None takes it for
// a message that ends its processes.
func TestBusyMessageIsNotBuried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("busy")
	config := w.config()
	config.Retry = []time.Duration{20 * time.Millisecond}
	var handled consumertest.Calls
	for range 3 {
		w.run(config, func(_ context.Context, m *consumer.Message) error {
			handled.Note(m)
			if handled.Times(m.ID) < 70 {
				return consumer.ErrBusy
			}
			return nil
		})
	}
	w.settled()
	w.wantDead()
	handled.Want(t, 70, "busy")
}

// Busy messages take no places: others are handled meanwhile.
func TestBusyMessagesDelayNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := w.config()
	config.Prefetch, config.Retry = 3, []time.Duration{time.Hour}
	w.publish("busy 1", "busy 2", "busy 3", "good")
	var handled consumertest.Calls
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		if m.ID == "good" {
			return nil
		}
		return consumer.ErrBusy
	})
	servers.Eventually(t, time.Minute, "the last message is handled", func() bool { return handled.Times("good") == 1 })
	if err := stop(); err != nil {
		t.Error(err)
	}
	handled.Want(t, 1, "busy 1", "busy 2", "busy 3")
}

// ends counts the handlings that have ended, with what was told to the server about them.
type ends struct{ atomic.Int32 }

func (*ends) Begun(string)                                   {}
func (*ends) Depth(string, int)                              {}
func (*ends) DeadLetters(string, int)                        {}
func (e *ends) Ended(string, consumer.Result, time.Duration) { e.Add(1) }

// A stream that is deleted and made again has the old sequence numbers, and so has its consumer. The end of a handler
// of the first stream must not acknowledge the message with the same number in the second.
func TestOldHandlerSettlesNoNewMessage(t *testing.T) {
	t.Parallel()
	for name, full := range map[string]bool{"while a pull waits": false, "while no pull waits": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			old, release := make(chan struct{}), make(chan struct{})
			var ended ends
			config := w.config()
			config.Observer, config.AckWait, config.Concurrency = &ended, time.Minute, 2
			if full {
				config.Prefetch = 2
			}
			var handled consumertest.Calls
			begun := make(chan struct{}, 10)
			w.run(config, func(_ context.Context, m *consumer.Message) error {
				handled.Note(m)
				switch {
				case m.ID == "old" || m.ID == "beside":
					begun <- struct{}{}
					if m.ID == "old" {
						<-old
						return nil
					}
					<-release
				case handled.Times(m.ID) == 1:
					before := ended.Load()
					close(old)
					servers.Eventually(t, time.Minute, "the old handler has ended", func() bool { return ended.Load() > before })
					return errors.New("no such account")
				}
				return nil
			})
			w.publish("old", "beside")
			<-begun
			<-begun
			if err := w.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
				t.Fatal(err)
			}
			anew := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
			if _, err := w.js.CreateStream(t.Context(), anew); err != nil {
				t.Fatal(err)
			}
			w.publish("new")
			if full {
				w.durable()    // as another process makes it: the next pull gets the new message
				close(release) // frees a place, so that the process pulls again
			} else {
				defer close(release)
			}
			servers.Eventually(t, time.Minute, "the new message is handled again after its failure", func() bool {
				return handled.Times("new") == 2
			})
		})
	}
}

// An operator changes the durable consumer beside running processes. With a MaxDeliver, JetStream would keep a message
// after so many deliveries, and no process would learn of it.
func TestMaxDeliverIsTakenBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := w.config()
	config.DepthInterval = 20 * time.Millisecond
	var handled consumertest.Calls
	w.run(config, func(_ context.Context, m *consumer.Message) error { handled.Note(m); return nil })
	w.publish("1")
	w.settled()
	durable, err := w.js.Consumer(t.Context(), "ORDERS", "payments")
	if err != nil {
		t.Fatal(err)
	}
	changed := durable.CachedInfo().Config
	changed.MaxDeliver = 2
	if _, err := w.js.UpdateConsumer(t.Context(), "ORDERS", changed); err != nil {
		t.Fatal(err)
	}
	servers.Eventually(t, time.Minute, "no delivery is limited", func() bool {
		info, err := durable.Info(t.Context())
		return err == nil && info.Config.MaxDeliver == -1
	})
	w.publish("2")
	w.settled()
	handled.Want(t, 1, "1", "2")
}
