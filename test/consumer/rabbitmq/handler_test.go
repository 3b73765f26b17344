package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
)

var order = &consumer.Message{ID: "1001", Producer: "orders", Attempt: 1, Body: []byte("secret")}

func TestChainPutsTheFirstOutermost(t *testing.T) {
	t.Parallel()
	var calls []string
	named := func(name string) consumer.Middleware {
		return func(next consumer.Handler) consumer.Handler {
			return consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
				calls = append(calls, name)
				return next.Handle(ctx, m)
			})
		}
	}
	h := consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		calls = append(calls, "handler")
		return nil
	})
	if err := consumer.Chain(h, named("a"), named("b")).Handle(t.Context(), order); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "b", "handler"}; !slices.Equal(calls, want) {
		t.Errorf("%v", calls)
	}
}

func TestRecoverMakesAPanicAnError(t *testing.T) {
	t.Parallel()
	cause := errors.New("cause")
	h := consumer.Chain(consumer.HandlerFunc(func(context.Context, *consumer.Message) error { panic(cause) }),
		consumer.Recover())
	err := h.Handle(t.Context(), order)
	var panicked *consumer.PanicError
	if !errors.As(err, &panicked) || !errors.Is(err, cause) || len(panicked.Stack) == 0 {
		t.Errorf("%v", err)
	}
}

func TestRejectOfNothingIsNothing(t *testing.T) {
	t.Parallel()
	if err := consumer.Reject(nil); err != nil {
		t.Errorf("%v", err)
	}
}

func TestLoggingNamesMessageNeverBody(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	failure := errors.New("no money")
	h := consumer.Chain(consumer.HandlerFunc(func(context.Context, *consumer.Message) error { return failure }),
		consumer.Logging(logger))
	if err := h.Handle(t.Context(), order); !errors.Is(err, failure) {
		t.Errorf("%v", err)
	}
	got := text.String()
	if !strings.Contains(got, "message_id=orders/1001") || !strings.Contains(got, "no money") ||
		strings.Contains(got, "secret") {
		t.Errorf("%s", got)
	}
}

func TestDeduplicateDropsOnlyHandledMessages(t *testing.T) {
	t.Parallel()
	fail, calls := errors.New("not now"), 0
	results := []error{fail, consumer.Reject(fail), nil, nil}
	h := consumer.Chain(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		calls++
		return results[calls-1]
	}), consumer.Deduplicate(memory.New(10), slog.New(slog.DiscardHandler)))
	for i, want := range []error{fail, fail, nil, consumer.ErrDuplicate, consumer.ErrDuplicate} {
		if err := h.Handle(t.Context(), order); !errors.Is(err, want) {
			t.Errorf("call %d: %v", i, err)
		}
	}
	if calls != 3 {
		t.Errorf("handled %d times, want twice in vain and once to the end", calls)
	}
	// The same id of another producer is another message, and a message without an id is always new.
	for _, other := range []*consumer.Message{{ID: "1001", Producer: "refunds"}, {}, {}} {
		results = append(results, nil)
		before := calls
		if err := h.Handle(t.Context(), other); err != nil || calls != before+1 {
			t.Errorf("%+v was dropped: %v", other, err)
		}
	}
}

func TestDeduplicateAdmitsOneOfTwoCopies(t *testing.T) {
	t.Parallel()
	begun, goOn := make(chan struct{}), make(chan struct{})
	h := consumer.Chain(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		close(begun)
		<-goOn
		return nil
	}), consumer.Deduplicate(memory.New(10), slog.New(slog.DiscardHandler)))
	first := make(chan error, 1)
	go func() { first <- h.Handle(t.Context(), order) }()
	<-begun
	if err := h.Handle(t.Context(), order); !errors.Is(err, consumer.ErrBusy) {
		t.Errorf("the second copy: %v", err)
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

func TestDeduplicateReleasesAfterPanicAndCancel(t *testing.T) {
	t.Parallel()
	store := memory.New(10)
	h := consumer.Chain(consumer.HandlerFunc(func(context.Context, *consumer.Message) error { panic("fault") }),
		consumer.Recover(), consumer.Deduplicate(store, slog.New(slog.DiscardHandler)))
	if err := h.Handle(t.Context(), order); err == nil {
		t.Error("no error")
	}
	ctx, cancel := context.WithCancel(t.Context())
	h = consumer.Chain(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		cancel()
		return nil
	}), consumer.Deduplicate(store, slog.New(slog.DiscardHandler)))
	if err := h.Handle(ctx, order); err != nil {
		t.Error(err)
	}
	if status, _ := store.Begin(t.Context(), order.Key()); status != dedup.Done {
		t.Errorf("handled, and then %v", status)
	}
}

// away is a dedup.Store that is unreachable; with begins set, only after Begin.
type away struct{ begins bool }

var errAway = errors.New("away")

func (a away) Begin(context.Context, string) (dedup.Status, error) {
	if a.begins {
		return dedup.New, nil
	}
	return 0, errAway
}
func (away) Done(context.Context, string) error    { return errAway }
func (away) Release(context.Context, string) error { return errAway }

func TestDeduplicateWithUnreachableStore(t *testing.T) {
	t.Parallel()
	calls := 0
	count := consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		calls++
		return nil
	})
	var text bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&text, nil))
	err := consumer.Chain(count, consumer.Deduplicate(away{}, logger)).Handle(t.Context(), order)
	if !errors.Is(err, errAway) || calls != 0 {
		t.Errorf("not asked: %v, %d calls", err, calls)
	}
	err = consumer.Chain(count, consumer.Deduplicate(away{begins: true}, logger)).Handle(t.Context(), order)
	if err != nil || calls != 1 || !strings.Contains(text.String(), "cannot note") {
		t.Errorf("not noted: %v, %d calls, log %q", err, calls, text.String())
	}
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	good := func() rabbit.Config {
		return rabbit.Config{URL: "amqp://guest:guest@127.0.0.1:5672/", Queue: "payments"}
	}
	if _, err := rabbit.New(good()); err != nil {
		t.Fatal(err)
	}
	for field, change := range map[string]func(*rabbit.Config){
		"URL number 2": func(c *rabbit.Config) { c.URL += ",http://guest:hunter2@host" },
		"URL number 1": func(c *rabbit.Config) { c.URL = "" },
		"URL number 1 has a port that is no number from 1 to 65535; write host:port": func(c *rabbit.Config) {
			c.URL = "amqp://guest:hunter2@127.0.0.1:99999/"
		},
		"URL number 1 is not a URL of the scheme amqp or amqps": func(c *rabbit.Config) { c.URL = "redis://:hunter2@host" },
		"URL number 2 has an @ behind its host or a #; write": func(c *rabbit.Config) {
			c.URL += ",amqp://guest:hun/hunter2@host"
		},
		"URL number 1 cannot be read as a URL; write amqp://": func(c *rabbit.Config) {
			c.URL = "amqp://guest:hunter2%zz@host"
		},
		"Queue is":                    func(c *rabbit.Config) { c.Queue = "" },
		"Prefetch is":                 func(c *rabbit.Config) { c.Prefetch = -1 },
		"Concurrency is":              func(c *rabbit.Config) { c.Concurrency = 21 },
		"Retry holds":                 func(c *rabbit.Config) { c.Retry = []time.Duration{0} },
		"StopTimeout is":              func(c *rabbit.Config) { c.StopTimeout = -1 },
		"DepthInterval is":            func(c *rabbit.Config) { c.DepthInterval = -1 },
		"Declare.QueueType is":        func(c *rabbit.Config) { c.Declare = &rabbit.Declare{QueueType: "stream"} },
		"Declare.DeadLetterExchange":  func(c *rabbit.Config) { c.Declare = &rabbit.Declare{DeliveryLimit: 5} },
		"Declare.DeliveryLimit is -1": func(c *rabbit.Config) { c.Declare = &rabbit.Declare{DeliveryLimit: -1} },
	} {
		config := good()
		change(&config)
		_, err := rabbit.New(config)
		if err == nil || !strings.Contains(err.Error(), field) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v", field, err)
		}
	}
}
