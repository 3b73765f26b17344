package nats_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/servers"
)

// More messages wait for their next delivery than the process may have at once. They delay no other.
func TestFailingMessagesDelayNoOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := w.config()
	config.Prefetch, config.Retry = 5, []time.Duration{time.Hour}
	var handled consumertest.Calls
	w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		if strings.HasPrefix(m.ID, "bad") {
			return errors.New("no such account")
		}
		return nil
	})
	for range 4 {
		w.publish("bad 1", "bad 2", "bad 3", "bad 4", "bad 5", "bad 6")
	}
	w.publish(numbered(20)...)
	servers.Eventually(t, 30*time.Second, "the last message is handled", func() bool { return handled.Times("19") == 1 })
	handled.Want(t, 1, numbered(20)...)
}

// With Prefetch 5, no process has more than five messages, also when the server may hand out more.
func TestPrefetchBoundsMessagesAtHand(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(numbered(20)...)
	config := w.config()
	config.Prefetch, config.AckWait = 5, time.Minute
	begun, release := make(chan struct{}, 20), make(chan struct{})
	stop := w.run(config, func(context.Context, *consumer.Message) error {
		begun <- struct{}{}
		<-release
		return nil
	})
	<-begun
	w.allReceived(5)
	var second consumertest.Calls
	w.run(config, func(_ context.Context, m *consumer.Message) error { second.Note(m); return nil })
	servers.Eventually(t, 30*time.Second, "another process gets the rest", func() bool { return second.Times("19") == 1 })
	w.allReceived(5)
	close(release)
	if err := stop(); err != nil {
		t.Error(err)
	}
	second.Want(t, 1, numbered(20)[5:]...)
}

// returned delivers the only message of the stream 20 times, and returns it each time.
func (w *world) returned(id string) (durable jetstream.Consumer) {
	w.t.Helper()
	w.publish(id)
	durable = w.durable()
	for range 20 {
		m, err := durable.Next()
		if err == nil {
			err = m.Nak()
		}
		if err != nil {
			w.t.Fatal(err)
		}
	}
	return durable
}

// begun is how many processes have noted that they handle the first message of the stream.
func (w *world) begun() (processes int) {
	w.t.Helper()
	durable, err := w.js.Consumer(w.t.Context(), "ORDERS", "payments")
	if err != nil {
		w.t.Fatal(err)
	}
	for name := range durable.CachedInfo().Config.Metadata {
		if strings.HasPrefix(name, "msghandler-begun.1.") {
			processes++
		}
	}
	return processes
}

// Processes end while they handle one message, which they have noted. Such a message becomes a dead letter, and no
// handler sees it.
func TestMessageThatEndsProcessesIsBuried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	noted := w.returned("deadly").CachedInfo().Config
	noted.Metadata = map[string]string{}
	for _, process := range numbered(5) {
		noted.Metadata["msghandler-begun.1."+process] = "1"
	}
	if _, err := w.js.UpdateConsumer(t.Context(), "ORDERS", noted); err != nil {
		t.Fatal(err)
	}
	w.publish("good")
	var handled consumertest.Calls
	w.run(w.config(), func(_ context.Context, m *consumer.Message) error { handled.Note(m); return nil })
	w.settled()
	handled.Want(t, 0, "deadly")
	handled.Want(t, 1, "good")
	w.wantDead("deadly")
}

// Processes have returned a message again and again when they stopped. None of them has ended by it: the message is
// handled, and a stop during its handling leaves no note.
func TestReturnedMessageIsNotBuried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.returned("returned")
	config := w.config()
	config.StopTimeout = time.Millisecond
	for range 2 {
		begun := make(chan struct{}, 1)
		stop := w.run(config, func(ctx context.Context, _ *consumer.Message) error {
			begun <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		})
		select {
		case <-begun:
		case <-time.After(time.Minute):
			t.Fatal("the returned message has no handler")
		}
		if noted := w.begun(); noted != 1 {
			t.Errorf("%d processes have noted the message, want 1", noted)
		}
		_ = stop() // the handler takes too long
		if noted := w.begun(); noted != 0 {
			t.Errorf("after a stop %d processes have noted the message", noted)
		}
	}
	var handled consumertest.Calls
	w.run(config, func(_ context.Context, m *consumer.Message) error { handled.Note(m); return nil })
	w.settled()
	handled.Want(t, 1, "returned")
	w.wantDead()
}

// A process that ends takes the messages beside the guilty one with it, and all have its count. They are handled in an
// order by chance, or all would become dead letters together.
func TestNeighboursOfDeadlyMessageAreSpread(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(numbered(12)...)
	durable := w.durable()
	for range 5 {
		batch, err := durable.Fetch(12)
		if err != nil {
			t.Fatal(err)
		}
		var taken []jetstream.Msg
		for m := range batch.Messages() {
			taken = append(taken, m)
		}
		for _, m := range taken {
			if err := m.Nak(); err != nil || len(taken) != 12 {
				t.Fatal(len(taken), err)
			}
		}
	}
	var mu sync.Mutex
	var order []string
	w.run(w.config(), func(_ context.Context, m *consumer.Message) error {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, m.ID)
		return nil
	})
	w.settled()
	mu.Lock()
	defer mu.Unlock()
	if len(order) != 12 || slices.Equal(order, numbered(12)) {
		t.Errorf("handled in the order %v", order)
	}
}

// A letter is larger than its message. One that does not fit loses most of its reason, or else most of its body.
func TestTooLargeLetterIsCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const limit = 8 << 10
	small := jetstream.StreamConfig{Name: "SMALL", Subjects: []string{"SMALL.>"}, MaxMsgSize: limit}
	if _, err := w.js.CreateStream(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	for id, size := range map[string]int{"fits": limit - 1000, "cut": limit, "whole": 10} {
		m := client.NewMsg("orders.paid")
		m.Data = make([]byte, size)
		m.Header.Set("msghandler-id", id)
		m.Header.Set("msghandler-producer", "orders")
		m.Header.Set("tenant", "eu")
		if _, err := w.js.PublishMsg(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	config := w.config()
	config.DeadLetterStream = "SMALL"
	var handled consumertest.Calls
	w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		return consumer.Reject(errors.New(strings.Repeat("long", 1000)))
	})
	w.settled()
	handled.Want(t, 1, "fits", "cut", "whole")
	dead, err := natsconsumer.NewDeadLetters(w.server.URL, nil, "SMALL")
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]struct{ body, reason int }{
		"fits": {limit - 1000, 100}, "cut": {1024, 0}, "whole": {10, 1000},
	} {
		l, err := dead.Show(t.Context(), "orders/"+id)
		if err != nil || len(l.Body) != want.body || want.reason > 0 && len(l.Reason) != want.reason {
			t.Errorf("%s: %d bytes, %q, %v", id, len(l.Body), l.Reason, err)
		}
		if cut := want.reason == 0; cut != strings.Contains(l.Reason, "cut to 1024 of 8192 bytes") ||
			cut == (l.Headers["tenant"] == "eu") {
			t.Errorf("%s: %q, %v", id, l.Reason, l.Headers)
		}
	}
	_, err = dead.Replay(t.Context(), consumer.Anywhere, "orders/cut")
	if err == nil || !strings.Contains(err.Error(), "by hand") {
		t.Errorf("replayed a cut letter: %v", err)
	}
}
