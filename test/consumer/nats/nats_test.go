// Package nats_test tests consumer/nats on a real nats-server.
package nats_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
	"github.com/msghandler/msghandler/consumer/nats"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	goleak.VerifyTestMain(servers.Stopping(m))
}

// world is a server with the streams ORDERS and DEAD, and the test's own connection.
type world struct {
	t      *testing.T
	server *servers.NATSServer
	js     jetstream.JetStream
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, server: servers.NATS(t)}
	w.js = natsserver.JetStream(t, w.server.URL)
	for name, subject := range map[string]string{"ORDERS": "orders.>", "DEAD": "DEAD.>"} {
		config := jetstream.StreamConfig{Name: name, Subjects: []string{subject}}
		if _, err := w.js.CreateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// publish publishes messages as the coordinator does, but without the id by which JetStream deduplicates.
func (w *world) publish(ids ...string) {
	w.t.Helper()
	for _, id := range ids {
		m := client.NewMsg("orders.paid")
		m.Data = []byte("paid " + id)
		for key, value := range map[string]string{
			"msghandler-id": id, "msghandler-producer": "orders", "msghandler-attempt": "2", "content-type": "text/plain",
			"msghandler-timestamp": "2023-11-14T22:13:20Z", "tenant": "eu",
		} {
			m.Header.Set(key, value)
		}
		if _, err := w.js.PublishMsg(w.t.Context(), m); err != nil {
			w.t.Fatal(err)
		}
	}
}

// config is the consumer "payments" with times that fit a test.
func (w *world) config() nats.Config {
	return nats.Config{
		URL: w.server.URL, Stream: "ORDERS", Name: "payments", DeadLetterStream: "DEAD", MaxDeliveries: 3,
		Retry: []time.Duration{50 * time.Millisecond}, AckWait: time.Second,
	}
}

// run consumes until stop is called, which returns Run's error.
func (w *world) run(config nats.Config, h consumer.HandlerFunc) (stop func() error) {
	w.t.Helper()
	c, err := nats.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, h) }()
	stop = sync.OnceValue(func() error { cancel(); return <-done })
	w.t.Cleanup(func() { _ = stop() })
	return stop
}

// settled waits until the consumer has acknowledged everything that the stream has. A new consumer may
// report for a moment that nothing is pending.
func (w *world) settled() {
	w.t.Helper()
	servers.Eventually(w.t, 30*time.Second, "every message is settled", func() bool {
		c, err := w.js.Consumer(w.t.Context(), "ORDERS", "payments")
		if err != nil {
			return false
		}
		stream, err := w.js.Stream(w.t.Context(), "ORDERS")
		if err != nil {
			return false
		}
		return c.CachedInfo().AckFloor.Stream >= stream.CachedInfo().State.LastSeq
	})
}

// dead are the messages of the dead-letter stream.
func (w *world) dead() (all []*jetstream.RawStreamMsg) {
	w.t.Helper()
	stream, err := w.js.Stream(w.t.Context(), "DEAD")
	if err != nil {
		w.t.Fatal(err)
	}
	for n := uint64(1); n <= stream.CachedInfo().State.LastSeq; n++ {
		m, err := stream.GetMsg(w.t.Context(), n)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// calls counts how often a handler got each id.
type calls struct {
	mu sync.Mutex
	of map[string]int
}

func (c *calls) add(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[id]++
}

// count is how many of the messages were handled.
func (c *calls) count(ids []string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		n += min(c.of[id], 1)
	}
	return n
}

func (c *calls) want(t *testing.T, ids []string, n int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, id := range ids {
		if c.of[id] != n {
			t.Errorf("%s was handled %d times, want %d", id, c.of[id], n)
		}
	}
}

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}

func TestMessagesAreHandledAndAcknowledged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(numbered(100)...)
	config := w.config()
	config.Concurrency = 4
	var handled calls
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.add(m.ID)
		if m.Key() != "orders/"+m.ID || m.Attempt != 2 || m.Redelivered || m.Exchange != "ORDERS" ||
			m.RoutingKey != "orders.paid" || m.ContentType != "text/plain" || string(m.Body) != "paid "+m.ID ||
			m.Timestamp.Unix() != 1_700_000_000 || len(m.Headers) != 1 || m.Headers["tenant"] != "eu" {
			t.Errorf("%+v", m)
		}
		return nil
	})
	w.publish("later")
	w.settled()
	if err := stop(); err != nil {
		t.Error(err)
	}
	handled.want(t, append(numbered(100), "later"), 1)
	if letters := w.dead(); len(letters) > 0 {
		t.Errorf("%d dead letters", len(letters))
	}
}

// One message fails always, another once, and a third is rejected. The others are handled meanwhile.
func TestFailedMessagesBecomeDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("bad", "1", "once", "2", "rejected", "3")
	var handled calls
	w.run(w.config(), func(_ context.Context, m *consumer.Message) error {
		handled.add(m.ID)
		switch {
		case m.ID == "bad":
			return errors.New("no\r\nsuch account")
		case m.ID == "rejected":
			return consumer.Reject(errors.New("unreadable"))
		case m.ID == "once" && m.Deliveries == 0:
			panic("once")
		}
		return nil
	})
	w.settled()
	handled.want(t, []string{"1", "2", "3", "rejected"}, 1)
	handled.want(t, []string{"once"}, 2)
	handled.want(t, []string{"bad"}, 3)
	reasons := map[string]string{}
	for _, m := range w.dead() {
		reasons[m.Header.Get("msghandler-id")] = m.Header.Get("msghandler-dead-reason")
		if m.Subject != "DEAD.orders.paid" || m.Header.Get("msghandler-origin-exchange") != "ORDERS" ||
			m.Header.Get("tenant") != "eu" || m.Header.Get("msghandler-origin-queue") != "payments" {
			t.Errorf("%+v", m)
		}
	}
	if len(reasons) != 2 || reasons["bad"] != "no such account" || reasons["rejected"] != "rejected: unreadable" {
		t.Errorf("the dead letters are %v", reasons)
	}
}

// Without its copy among the dead letters a message is not acknowledged.
func TestMessageOutlivesMissingDeadLetterStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("bad")
	config := w.config()
	config.DeadLetterStream = "NONE"
	var tries atomic.Int64
	w.run(config, func(context.Context, *consumer.Message) error {
		tries.Add(1)
		return consumer.Reject(errors.New("unreadable"))
	})
	servers.Eventually(t, time.Minute, "the message is tried again and again", func() bool { return tries.Load() >= 4 })
	stream := jetstream.StreamConfig{Name: "NONE", Subjects: []string{"NONE.>"}}
	if _, err := w.js.CreateStream(t.Context(), stream); err != nil {
		t.Fatal(err)
	}
	w.settled()
}

func TestCopiesAreDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("1", "1", "2", "1")
	config := w.config()
	config.Dedup = memory.New(100)
	var handled calls
	w.run(config, func(_ context.Context, m *consumer.Message) error { handled.add(m.ID); return nil })
	w.settled()
	handled.want(t, []string{"1", "2"}, 1)
}

// A handler that takes longer than AckWait keeps its message, and so do the messages that wait behind it.
func TestLongHandlerKeepsItsMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("1", "2")
	var handled calls
	w.run(w.config(), func(_ context.Context, m *consumer.Message) error {
		handled.add(m.ID)
		<-time.After(3 * time.Second)
		return nil
	})
	w.settled()
	handled.want(t, []string{"1", "2"}, 1)
}

// The server is killed twice under load. Every message takes effect once.
func TestKilledServerLosesNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := numbered(500)
	w.publish(ids...)
	config := w.config()
	config.Dedup, config.Concurrency = memory.New(1000), 4
	var handled calls
	var n atomic.Int64
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		<-time.After(5 * time.Millisecond)
		handled.add(m.ID)
		n.Add(1)
		return nil
	})
	for _, goal := range []int64{100, 300} {
		servers.Eventually(t, time.Minute, "messages are handled", func() bool { return n.Load() >= goal })
		w.server.Kill()
		w.server.Start()
	}
	w.settled()
	if err := stop(); err != nil {
		t.Error(err)
	}
	handled.want(t, ids, 1)
}

// At a stop, messages that wait go back, and running handlers finish.
func TestStopFinishesAndGivesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(numbered(10)...)
	begun, release := make(chan struct{}, 10), make(chan struct{})
	var first, second calls
	config := w.config()
	config.AckWait = time.Minute // a message that did not go back would come too late
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		first.add(m.ID)
		begun <- struct{}{}
		<-release
		return nil
	})
	<-begun
	stopped := make(chan error)
	go func() { stopped <- stop() }()
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	w.run(config, func(_ context.Context, m *consumer.Message) error { second.add(m.ID); return nil })
	w.settled()
	for _, id := range numbered(10) {
		if n := first.of[id] + second.of[id]; n != 1 {
			t.Errorf("%s was handled %d times", id, n)
		}
	}
}

// queued runs a consumer without Dedup. The handler holds the first of five messages while the others wait. Then the
// pull ends by end, and a new pull begins. Only the message in the handler may be handled again.
func (w *world) queued(end func()) {
	w.t.Helper()
	ids := numbered(5)
	w.publish(ids...)
	config := w.config()
	consuming, begun, release := make(chan struct{}, 10), make(chan struct{}, 10), make(chan struct{})
	config.Consuming = func() { consuming <- struct{}{} }
	var handled calls
	w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.add(m.ID)
		if m.ID == "0" {
			begun <- struct{}{}
			<-release
		}
		return nil
	})
	<-begun
	w.allReceived(ids, &handled)
	<-consuming
	end()
	<-consuming
	<-begun
	w.allReceived(ids, &handled)
	close(release)
	w.settled()
	handled.want(w.t, ids[:1], 2)
	handled.want(w.t, ids[1:], 1)
}

// allReceived waits until the messages are with the consumer. A killed server may have forgotten that it delivered the
// messages after the first, and then they may be handled before the first comes again.
func (w *world) allReceived(ids []string, handled *calls) {
	w.t.Helper()
	seen := ""
	defer func() { w.t.Log("the server says of the consumer:", seen) }()
	servers.Eventually(w.t, 30*time.Second, "the messages are received", func() bool {
		c, err := w.js.Consumer(w.t.Context(), "ORDERS", "payments")
		if err != nil {
			seen = err.Error()
			return false
		}
		seen = fmt.Sprintf("%+v", c.CachedInfo())
		return c.CachedInfo().NumAckPending+handled.count(ids[1:]) == len(ids)
	})
}

// Messages that waited for a handler when the connection ended are handled by the next connection alone.
func TestLostConnectionDropsItsQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queued(func() {
		w.server.Kill()
		w.server.Start()
	})
}

func TestEndOfPullDropsItsQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.queued(func() {
		if err := w.js.DeleteConsumer(w.t.Context(), "ORDERS", "payments"); err != nil {
			w.t.Fatal(err)
		}
	})
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*nats.Config){
		"URL":         func(c *nats.Config) { c.URL = "nats://u:s3cr3t@h:port" },
		"stream":      func(c *nats.Config) { c.Stream = "" },
		"name":        func(c *nats.Config) { c.Name = "a.b" },
		"limit":       func(c *nats.Config) { c.DeadLetterStream = "" },
		"concurrency": func(c *nats.Config) { c.Concurrency = 21 },
		"retry":       func(c *nats.Config) { c.Retry = []time.Duration{0} },
		"language":    func(c *nats.Config) { c.Language = "de" },
	} {
		config := nats.Config{URL: "nats://h", Stream: "S", Name: "n", DeadLetterStream: "D", MaxDeliveries: 2}
		if _, err := nats.New(config); err != nil {
			t.Fatal(err)
		}
		spoil(&config)
		if _, err := nats.New(config); err == nil {
			t.Errorf("%s: the configuration was taken", name)
		}
	}
}
