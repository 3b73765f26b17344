package direct_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/producer/outbox/direct"
)

// broker is a publisher whose answers a test chooses.
type broker struct {
	config publish.Config
	// away is what Await returns when the patience of its caller ends; nil is a broker that takes messages.
	away error
	// answer is the result of a message; nil leaves the message without one until the context ends, and then for late.
	answer func(m *publish.Message) *publish.Result
	late   time.Duration
	got    []publish.Message
	closed atomic.Bool
}

func (b *broker) Await(ctx context.Context) error {
	if b.away != nil {
		<-ctx.Done()
	}
	return b.away
}

func (b *broker) Ready() error                { return b.away }
func (b *broker) InFlight() int               { return 0 }
func (b *broker) Close(context.Context) error { b.closed.Store(true); return nil }

func (b *broker) Publish(
	ctx context.Context, batch []publish.Message, answered func(places []int, results []publish.Result),
) {
	b.got = append(b.got, batch...)
	var late []int
	for i := range batch {
		if r := b.answer(&batch[i]); r != nil {
			answered([]int{i}, []publish.Result{*r})
		} else {
			late = append(late, i)
		}
	}
	if len(late) == 0 {
		return
	}
	<-ctx.Done()
	time.Sleep(b.late)
	for _, i := range late {
		answered([]int{i}, []publish.Result{{Outcome: publish.Acked}})
	}
}

func sender(t *testing.T, b *broker) *direct.Sender {
	t.Helper()
	s, err := direct.New(direct.Config{URL: "fake", Producer: "orders"}, time.Minute,
		func(c publish.Config) (*broker, error) { b.config = c; return b, nil })
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func queued(id string) sql.Queued {
	return sql.Queued{Claims: 1, Message: producer.Message{ID: id, Exchange: "e", RoutingKey: "k"}}
}

var errBroker = errors.New("the broker's reason")

func TestEachOutcomeHasItsFate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result publish.Result
		want   outbox.Result
	}{
		"acknowledged": {publish.Result{Outcome: publish.Acked}, outbox.Result{Fate: outbox.Sent}},
		"refused":      {publish.Refused.Because(errBroker), outbox.Result{Fate: outbox.Refused}},
		"unsure":       {publish.Unsure.Because(errBroker), outbox.Result{Fate: outbox.Unreached}},
		"unsent":       {publish.Unsent.Because(errBroker), outbox.Result{Fate: outbox.Unreached, Unsent: true}},
		"stalled": {
			publish.Unsent.Because(errors.Join(publish.ErrStalled, errBroker)),
			outbox.Result{Fate: outbox.Early, In: 15 * time.Second},
		},
	} {
		s := sender(t, &broker{answer: func(*publish.Message) *publish.Result { return &test.result }})
		got := s.Send(t.Context(), []sql.Queued{queued("1")})[0]
		named := errors.Is(got.Err, errBroker) && strings.Contains(got.Err.Error(), "publish 1:")
		if test.want.Fate != outbox.Sent && !named {
			t.Errorf("%s: the error is %v", name, got.Err)
		}
		if got.Err = nil; got != test.want {
			t.Errorf("%s: got %+v, want %+v", name, got, test.want)
		}
	}
}

// Messages that are not to be published leave the others alone.
func TestHeldMessagesAreNotPublished(t *testing.T) {
	t.Parallel()
	b := &broker{answer: func(*publish.Message) *publish.Result { return &publish.Result{Outcome: publish.Acked} }}
	unreadable, named, early, late := queued("unreadable"), queued("named"), queued("early"), queued("late")
	unreadable.Unreadable = errors.New("no JSON")
	named.Message.Broker = "events"
	early.Message.Delay, early.Age = time.Hour, time.Minute
	late.Message.Delay, late.Age, late.Claims = time.Hour, 3*time.Hour, 4
	got := sender(t, b).Send(t.Context(), []sql.Queued{unreadable, early, late, named})
	if got[0].Fate != outbox.Refused || got[1] != (outbox.Result{Fate: outbox.Early, In: 59 * time.Minute}) ||
		got[2].Fate != outbox.Sent || got[3].Fate != outbox.Refused {
		t.Errorf("got %+v", got)
	}
	if len(b.got) != 1 || b.got[0].Name.String() != "orders/late" || b.got[0].Attempt != 4 ||
		time.Since(b.got[0].DueAt).Round(time.Minute) != 2*time.Hour {
		t.Errorf("published %+v", b.got)
	}
	if b.config.Name != "outbox orders" || b.config.ProbePauses == nil {
		t.Errorf("the publisher has the configuration %+v", b.config)
	}
}

func TestBrokerThatIsAwayGetsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &broker{away: errBroker}
		began := time.Now()
		got := sender(t, b).Send(t.Context(), []sql.Queued{queued("1")})[0]
		if got.Fate != outbox.Unreached || !got.Unsent || !errors.Is(got.Err, errBroker) || len(b.got) > 0 {
			t.Errorf("got %+v", got)
		}
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("the batch waited %v for the broker", took)
		}
	})
}

// A relay stops while the publisher gathers acknowledgements. They count, and nothing is published again.
func TestAnswersCountAfterAStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &broker{answer: func(*publish.Message) *publish.Result { return nil }, late: publish.HandOverEvery}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		got := sender(t, b).Send(ctx, []sql.Queued{queued("1"), queued("2")})
		if got[0].Fate != outbox.Sent || got[1].Fate != outbox.Sent {
			t.Errorf("got %+v", got)
		}
	})
}

// A message without an answer when the context ends is unreached, and may have left. A later answer changes no result.
func TestSendReturnsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &broker{answer: func(m *publish.Message) *publish.Result {
			if m.Name.ID == "late" {
				return nil
			}
			return &publish.Result{Outcome: publish.Acked}
		}, late: time.Second}
		s := sender(t, b)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		got := s.Send(ctx, []sql.Queued{queued("late"), queued("prompt")})
		if took := time.Since(began); took != time.Second+300*time.Millisecond {
			t.Errorf("Send took %v", took)
		}
		time.Sleep(time.Minute)
		if got[0].Fate != outbox.Unreached || got[0].Unsent || got[0].Err == nil || got[1].Fate != outbox.Sent {
			t.Errorf("got %+v", got)
		}
		if s.Close(); !b.closed.Load() {
			t.Error("the publisher is not closed")
		}
	})
}

func TestConfigurationErrorNamesTheField(t *testing.T) {
	t.Parallel()
	bad := func(publish.Config) (*broker, error) { return nil, errBroker }
	for config, want := range map[direct.Config]string{
		{URL: "fake"}:                     "Config.Producer is missing",
		{URL: "fake", Producer: "orders"}: "Config.URL: the broker's reason",
	} {
		if _, err := direct.New(config, time.Minute, bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
