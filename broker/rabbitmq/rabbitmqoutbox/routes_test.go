package rabbitmqoutbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
)

// to are messages to queues, by the default exchange.
func to(queues ...string) (messages []sql.Queued) {
	for i, queue := range queues {
		messages = append(messages, sql.Queued{Message: producer.Message{ID: fmt.Sprint(i), RoutingKey: queue}})
	}
	return messages
}

// timedOut is a context whose deadline has passed.
func timedOut() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	cancel()
	return ctx
}

var (
	sent       = outbox.Result{Fate: outbox.Sent}
	unanswered = outbox.Result{Err: fmt.Errorf("publish 1: %w", errUnanswered)}
)

func wantPlaces(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v are sent, want %v", what, got, want)
	}
}

// newSender returns a sender for hold and learn, which use no connection.
func newSender() *Sender { return &Sender{routes: publish.NewRoutes(probePauses)} }

// After a message without an answer beside answered messages, one message for its queue is sent after each pause.
func TestOneMessageProbesStalledQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		s.learn(timedOut(), to("stuck", "well", "stuck"), []outbox.Result{unanswered, sent, unanswered})
		batch := to("stuck", "well", "stuck")
		for range 5 {
			places, results := s.hold(batch)
			wantPlaces(t, "in the pause", places, 1)
			for _, i := range []int{0, 2} {
				r := results[i]
				if r.Fate != outbox.Early || r.In <= 0 || r.In > 2*time.Minute || !errors.Is(r.Err, publish.ErrStalled) {
					t.Errorf("%+v", r)
				}
			}
			time.Sleep(results[0].In)
			places, results = s.hold(batch)
			wantPlaces(t, "after the pause", places, 0, 1)
			if r := results[2]; r.Fate != outbox.Early || r.In != besideProbe {
				t.Errorf("beside the probe: %+v", r)
			}
			s.learn(timedOut(), to("stuck", "well"), []outbox.Result{unanswered, sent})
		}
		if _, results := s.hold(batch); results[0].In < time.Minute {
			t.Errorf("the pause has grown to %v only", results[0].In)
		}
		time.Sleep(2 * time.Minute)
		s.hold(batch)
		s.learn(t.Context(), to("stuck", "well"), []outbox.Result{sent, sent})
		places, _ := s.hold(batch)
		wantPlaces(t, "after an answer", places, 0, 1, 2)
	})
}

// A broker without any answers, or a queue with some answers, is no queue that does not confirm.
func TestUnansweredAloneIsNotStalled(t *testing.T) {
	broken := outbox.Result{Err: errors.New("the connection broke")}
	for name, test := range map[string]struct {
		ctx     context.Context
		results []outbox.Result
	}{
		"no message had an answer":           {timedOut(), []outbox.Result{unanswered, unanswered, unanswered}},
		"another message to a had an answer": {timedOut(), []outbox.Result{unanswered, sent, sent}},
		"another message to a was refused":   {timedOut(), []outbox.Result{unanswered, sent, {Fate: outbox.Refused}}},
		"the connection broke":               {timedOut(), []outbox.Result{broken, sent, broken}},
		"the relay was stopped":              {stopped(), []outbox.Result{unanswered, sent, unanswered}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSender()
			s.learn(test.ctx, to("a", "b", "a"), test.results)
			places, _ := s.hold(to("a", "b", "a"))
			wantPlaces(t, "then", places, 0, 1, 2)
		})
	}
}

func stopped() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// A probe without a result, as when the broker was away, leaves the next probe to the next batch.
func TestProbeWithoutResultIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSender()
		s.learn(timedOut(), to("stuck", "well"), []outbox.Result{unanswered, sent})
		time.Sleep(time.Minute)
		for _, r := range []outbox.Result{{Unsent: true, Err: errors.New("away")}, {Fate: outbox.Early, In: time.Hour}} {
			places, _ := s.hold(to("stuck"))
			wantPlaces(t, "the probe", places, 0)
			s.learn(t.Context(), to("stuck"), []outbox.Result{r})
		}
		unfit := to("stuck")
		unfit[0].Unreadable = errors.New("unreadable")
		s.hold(unfit)
		s.learn(t.Context(), unfit, []outbox.Result{{Fate: outbox.Refused}})
		if stuck := routed(&unfit[0]); !s.routes.IsStalled(&stuck) {
			t.Error("a message that AMQP cannot carry ended the stall")
		}
		places, _ := s.hold(to("stuck"))
		wantPlaces(t, "the next probe", places, 0)
		s.learn(timedOut(), to("stuck"), []outbox.Result{unanswered}) // alone
		places, _ = s.hold(to("stuck"))
		wantPlaces(t, "after it had no answer", places)
	})
}
