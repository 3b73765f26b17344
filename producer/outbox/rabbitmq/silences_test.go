package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

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

// over is a context whose time is over.
func over() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 0)
	cancel()
	return ctx
}

var (
	taken      = outbox.Result{Fate: outbox.Sent}
	unanswered = outbox.Result{Err: fmt.Errorf("publish 1: %w", errUnanswered)}
)

func wantPlaces(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v are sent, want %v", what, got, want)
	}
}

// After a message had no answer while others had, one for its queue is sent after each pause, and no other.
func TestOneMessageTriesAQueueThatDoesNotConfirm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silences{}
		s.learn(over(), to("stuck", "well", "stuck"), []outbox.Result{unanswered, taken, unanswered})
		batch := to("stuck", "well", "stuck")
		for range 5 {
			places, results := s.hold(batch)
			wantPlaces(t, "in the pause", places, 1)
			for _, i := range []int{0, 2} {
				r := results[i]
				if r.Fate != outbox.Early || r.In <= 0 || r.In > 2*time.Minute || !errors.Is(r.Err, errSilent) {
					t.Errorf("%+v", r)
				}
			}
			time.Sleep(results[0].In)
			places, results = s.hold(batch)
			wantPlaces(t, "after the pause", places, 0, 1)
			if r := results[2]; r.Fate != outbox.Early || r.In != tryPatience {
				t.Errorf("beside the one that tries: %+v", r)
			}
			s.learn(over(), to("stuck", "well"), []outbox.Result{unanswered, taken})
		}
		if pause := time.Until(s[route{"", "stuck"}].until); pause < time.Minute {
			t.Errorf("the pause has grown to %v only", pause)
		}
		time.Sleep(2 * time.Minute)
		s.hold(batch)
		s.learn(t.Context(), to("stuck", "well"), []outbox.Result{taken, taken})
		places, _ := s.hold(batch)
		wantPlaces(t, "after an answer", places, 0, 1, 2)
	})
}

// A broker that answers nobody, or not to some of a queue, has no queue that does not confirm.
func TestWhatIsNoQueueThatDoesNotConfirm(t *testing.T) {
	broken := outbox.Result{Err: errors.New("the connection broke")}
	for name, test := range map[string]struct {
		ctx     context.Context
		results []outbox.Result
	}{
		"nobody had an answer":          {over(), []outbox.Result{unanswered, unanswered, unanswered}},
		"another one of it had":         {over(), []outbox.Result{unanswered, taken, taken}},
		"another one of it was refused": {over(), []outbox.Result{unanswered, taken, {Fate: outbox.Refused}}},
		"the connection broke":          {over(), []outbox.Result{broken, taken, broken}},
		"the relay was stopped":         {stopped(), []outbox.Result{unanswered, taken, unanswered}},
	} {
		t.Run(name, func(t *testing.T) {
			s := silences{}
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

// A try that told nothing, as the broker was away, leaves the next one to the next batch.
func TestATryThatToldNothingIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := silences{}
		s.learn(over(), to("stuck", "well"), []outbox.Result{unanswered, taken})
		time.Sleep(time.Minute)
		for _, r := range []outbox.Result{{Unsent: true, Err: errors.New("away")}, {Fate: outbox.Early, In: time.Hour}} {
			places, _ := s.hold(to("stuck"))
			wantPlaces(t, "the try", places, 0)
			s.learn(t.Context(), to("stuck"), []outbox.Result{r})
		}
		unfit := to("stuck")
		unfit[0].Unreadable = errors.New("unreadable")
		s.hold(unfit)
		s.learn(t.Context(), unfit, []outbox.Result{{Fate: outbox.Refused}})
		if len(s) != 1 {
			t.Error("one that cannot be sent at all ended the silence")
		}
		places, _ := s.hold(to("stuck"))
		wantPlaces(t, "the next try", places, 0)
		s.learn(over(), to("stuck"), []outbox.Result{unanswered}) // alone
		places, _ = s.hold(to("stuck"))
		wantPlaces(t, "after it had no answer", places)
	})
}

func TestSilencesAreBounded(t *testing.T) {
	s := silences{}
	for i := range maxSilences + 1 {
		s.note(route{"", fmt.Sprint(i)})
	}
	if len(s) > maxSilences {
		t.Errorf("%d are remembered", len(s))
	}
}
