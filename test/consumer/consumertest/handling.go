package consumertest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/servers"
)

// A stop acknowledges what was handled: the next consumer sees none of it.
func handledOnce(t *testing.T, b Broker) {
	_, exchange, key := b.Origin()
	var handled Calls
	handler := func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		if m.Key() != "shop/"+m.ID || m.Attempt != 2 || m.Redelivered || m.Retries != 0 || m.Exchange != exchange ||
			m.RoutingKey != key || m.ContentType != "text/plain" || string(m.Body) != "body of "+m.ID ||
			m.Timestamp.Unix() != PublishedAt || len(m.Headers) != 1 || m.Headers["tenant"] != "eu" ||
			m.Consumer != "payments" {
			t.Errorf("the handler got %+v", m)
		}
		return nil
	}
	stop := b.Run(Options{Concurrency: 4}, handler)
	ids := numbered(100)
	b.Publish(ids...)
	handled.Await(t, ids...)
	stopped(t, stop)
	stop = b.Run(Options{}, handler)
	b.Publish("later")
	handled.Await(t, "later")
	stopped(t, stop)
	handled.Want(t, 1, append(ids, "later")...)
	awaitLetters(t, b, 0)
}

// One message fails always, another once by a panic, and a third is rejected. The others are handled meanwhile.
func failedBecomeLetters(t *testing.T, b Broker) {
	var handled Calls
	stop := b.Run(Options{}, func(_ context.Context, m *consumer.Message) error {
		switch n := handled.Note(m); {
		case m.ID == "bad":
			return errors.New("no\r\nsuch account")
		case m.ID == "rejected":
			return fmt.Errorf("order 1: %w", consumer.Reject(errors.New("unreadable")))
		case m.ID == "once" && n == 1:
			panic("once")
		}
		return nil
	})
	b.Publish("bad", "1", "once", "2", "rejected", "3")
	letters := awaitLetters(t, b, 2)
	servers.Eventually(t, patience, "the message that failed once is handled", func() bool {
		return handled.Times("once") == 2
	})
	handled.Await(t, "1", "2", "3")
	stopped(t, stop)
	handled.Want(t, 1, "1", "2", "3", "rejected")
	handled.Want(t, 1+Retries, "bad")
	queue, exchange, key := b.Origin()
	for id, want := range map[string]struct {
		reason  string
		retries int
	}{"bad": {"no such account", Retries}, "rejected": {"order 1: rejected: unreadable", 0}} {
		l := letters[id]
		if l.Reason != want.reason || l.Retries != want.retries || l.Queue != queue || l.Exchange != exchange ||
			l.RoutingKey != key || l.Headers["tenant"] != "eu" || time.Since(l.Since()) > time.Hour {
			t.Errorf("the letter of %s is %+v", id, l)
		}
	}
}

func copiesAreDropped(t *testing.T, b Broker) {
	var handled Calls
	stop := b.Run(Options{Dedup: memory.New(100)}, func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		return nil
	})
	b.Publish("1", "1", "2", "1", "last")
	handled.Await(t, "1", "2", "last")
	stopped(t, stop)
	handled.Want(t, 1, "1", "2", "last")
}

// The database of the handler is away for longer than all retries take. No message is at fault.
func transientTrouble(t *testing.T, b Broker) {
	var handled Calls
	observed := &Depths{}
	stop := b.Run(Options{Observer: observed}, func(_ context.Context, m *consumer.Message) error {
		n := handled.Note(m)
		if m.Deliveries > 0 || m.Redelivered || m.Retries > 0 {
			t.Errorf("the message was delivered again: %+v", m)
		}
		if n < 10 {
			return consumer.Transient(errors.New("the database is away"))
		}
		return nil
	})
	b.Publish("1")
	servers.Eventually(t, patience, "the message is handled", func() bool { return handled.Times("1") == 10 })
	stopped(t, stop)
	awaitLetters(t, b, 0)
	if n := observed.Results(consumer.Retried); n != 9 {
		t.Errorf("%d handlings were observed as retried, want 9", n)
	}
}

// interrupt runs a consumer whose handler outlasts the stop, and returns what result makes of the end of its context.
func interrupt(t *testing.T, b Broker, result func(error) error) {
	t.Helper()
	begun := make(chan struct{}, 10)
	stop := b.Run(Options{StopTimeout: 50 * time.Millisecond}, func(ctx context.Context, _ *consumer.Message) error {
		begun <- struct{}{}
		<-ctx.Done()
		return result(ctx.Err())
	})
	b.Publish("1")
	<-begun
	if err := stop(); err == nil || !strings.Contains(err.Error(), "StopTimeout") {
		t.Errorf("the stop: %v", err)
	}
}

func slowHandlers(t *testing.T, b Broker) {
	interrupt(t, b, func(err error) error { return err })
	var handled Calls
	stop := b.Run(Options{}, func(_ context.Context, m *consumer.Message) error { handled.Note(m); return nil })
	handled.Await(t, "1")
	stopped(t, stop)
}

// A rejection is the handler's decision, also when the handler's time has ended.
func rejectionWhileStopping(t *testing.T, b Broker) {
	interrupt(t, b, consumer.Reject)
	awaitLetters(t, b, 1)
}

// A handler outlasts the stop, and the grace after it. Its message belongs to the next consumer. On NATS the message
// stays with the handler, and becomes a dead letter. No broker has both.
func rejectionAfterStop(t *testing.T, b Broker) {
	log, begun, release := &logs.Lines{}, make(chan struct{}, 10), make(chan struct{})
	o := Options{StopTimeout: 10 * time.Millisecond, Logger: log.Logger()}
	stop := b.Run(o, func(context.Context, *consumer.Message) error {
		begun <- struct{}{}
		<-release
		return consumer.Reject(errors.New("too late"))
	})
	b.Publish("1")
	<-begun
	if err := stop(); err == nil || !strings.Contains(err.Error(), "StopTimeout") {
		t.Errorf("the stop: %v", err)
	}
	close(release)
	servers.Eventually(t, patience, "the rejection is logged", func() bool { return len(log.About(t, "1")) > 0 })
	var handled Calls
	stop = b.Run(Options{}, handled.Handle)
	b.Publish("later")
	handled.Await(t, "later")
	stopped(t, stop)
	letters, err := b.DeadLetters().Count(t.Context())
	if n := handled.Times("1"); letters+n != 1 || err != nil {
		t.Errorf("the message was handled %d times, and %d dead letters are left, %v", n, letters, err)
	}
}

// brittle is an error whose methods panic on a nil pointer.
type brittle struct{ why error }

func (b *brittle) Error() string { return b.why.Error() }
func (b *brittle) Unwrap() error { return b.why }

// A consumer calls the methods of these errors, which handlers return or panic with.
func strangeErrors(t *testing.T, b Broker) {
	var nothing *brittle
	var rejectsNothing *consumer.RejectError
	strange := map[string]func() error{
		"a nil pointer of an error's type": func() error { return nothing },
		"a typed error without its cause":  func() error { return &brittle{} },
		"a rejection without a cause":      func() error { return &consumer.RejectError{} },
		"a rejection that is nil":          func() error { return rejectsNothing },
		"a rejection of a nil pointer":     func() error { return consumer.Reject(nothing) },
		"nil pointers in a join":           func() error { return errors.Join(rejectsNothing, nothing) },
		"a panic with a nil pointer":       func() error { panic(nothing) },
		"a panic with a nil rejection":     func() error { panic(rejectsNothing) },
		"a panic with an empty rejection":  func() error { panic(&consumer.RejectError{}) },
		"a panic with nil":                 func() error { panic(nil) },
	}
	stop := b.Run(Options{}, func(_ context.Context, m *consumer.Message) error { return strange[m.ID]() })
	for id := range strange {
		b.Publish(id)
	}
	for id, l := range awaitLetters(t, b, len(strange)) {
		if l.Reason == "" {
			t.Errorf("%s is a dead letter without a reason: %+v", id, l)
		}
	}
	stopped(t, stop)
}

func fixedTexts(t *testing.T, open func(t *testing.T) Broker) {
	logs.FixedTexts(t, func(t *testing.T, language string, own *slog.Logger, h consumer.HandlerFunc) func(string) {
		b := open(t)
		b.Run(Options{Language: language, Logger: own}, h)
		return func(id string) { b.Publish(id) }
	})
}
