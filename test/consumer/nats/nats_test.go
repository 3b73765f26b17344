// Package nats_test tests broker/nats/natsconsumer on a real nats-server.
package nats_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/dedup/memory"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
	"github.com/msghandler/msghandler/test/wire"
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

// durable makes the durable consumer, as another process would.
func (w *world) durable() jetstream.Consumer {
	w.t.Helper()
	durable, err := w.js.CreateConsumer(w.t.Context(), "ORDERS", jetstream.ConsumerConfig{
		Durable: "payments", AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: -1, AckWait: time.Minute,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return durable
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
func (w *world) config() natsconsumer.Config {
	return natsconsumer.Config{
		URL: w.server.URL, Stream: "ORDERS", Name: "payments", DeadLetterStream: "DEAD", MaxDeliveries: 3,
		Retry: []time.Duration{50 * time.Millisecond}, AckWait: time.Second,
	}
}

// run consumes until stop is called, which returns Run's error.
func (w *world) run(config natsconsumer.Config, h consumer.HandlerFunc) (stop func() error) {
	w.t.Helper()
	c, err := natsconsumer.New(config)
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

func numbered(n int) (ids []string) {
	for i := range n {
		ids = append(ids, fmt.Sprint(i))
	}
	return ids
}

// wantDead fails the test unless the dead letters are those with the ids.
func (w *world) wantDead(ids ...string) {
	w.t.Helper()
	var found []string
	for _, m := range w.dead() {
		found = append(found, m.Header.Get("msghandler-id"))
	}
	if !slices.Equal(found, ids) {
		w.t.Errorf("the dead letters are %v, want %v", found, ids)
	}
}

// A message is busy for longer than MaxDeliveries. Then the message may still fail as often as any other.
func TestBusyDeliveriesAreNoFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("fails twice", "fails always")
	config := w.config()
	config.AckWait = time.Minute
	var handled consumertest.Calls
	w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		switch {
		case handled.Times(m.ID) <= 4:
			return consumer.ErrBusy
		case m.ID == "fails always" || handled.Times(m.ID) < 7:
			return errors.New("no such account")
		}
		return nil
	})
	w.settled()
	handled.Want(t, 7, "fails twice", "fails always")
	w.wantDead("fails always")
}

// A message waits for a handler while two connections are lost. Then the message may still fail as often as any other.
func TestLostConnectionsAreNoFailures(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("held", "waiting")
	consuming, begun, release := make(chan struct{}, 10), make(chan struct{}, 10), make(chan struct{})
	x := wire.TCP(t, wire.Host(t, w.server.URL)) // a server that is killed forgets its last deliveries
	config := w.config()
	config.URL = x.URL(w.server.URL)
	config.Consuming = func() { consuming <- struct{}{} }
	config.AckWait = 5 * time.Second            // the server delivers again what was on a lost connection
	config.Retry = []time.Duration{time.Second} // the handlers of the lost connections return meanwhile
	var handled consumertest.Calls
	w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		switch {
		case m.ID == "held":
			begun <- struct{}{}
			<-release
		case handled.Times(m.ID) < 3:
			return errors.New("no such account")
		}
		return nil
	})
	received := func() {
		<-consuming
		<-begun
		w.allReceived(2)
	}
	received()
	for range 2 {
		x.Disconnect()
		received()
	}
	close(release)
	w.settled()
	handled.Want(t, 3, "waiting")
	w.wantDead()
}

// interrupted delivers one message, ends the run while the handler has the message, and returns with the run. The
// message has no delay: a later delivery would come after the end of the test.
func (w *world) interrupted(result func(error) error) {
	w.t.Helper()
	config := w.config()
	config.StopTimeout, config.AckWait, config.Retry = time.Nanosecond, time.Minute, []time.Duration{time.Hour}
	begun := make(chan struct{})
	stop := w.run(config, func(ctx context.Context, _ *consumer.Message) error {
		close(begun)
		<-ctx.Done()
		return result(ctx.Err())
	})
	select {
	case <-begun:
	case <-time.After(time.Minute):
		w.t.Fatal("the message was not delivered within a minute")
	}
	if err := stop(); err == nil {
		w.t.Error("the handler did not outlast the stop")
	}
}

// The surroundings of handlers fail at a stop too: the context of their statements ends.
func TestStopGivesMessagesBackAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("1")
	w.interrupted(consumer.Transient)
	w.interrupted(func(error) error { return consumer.ErrBusy })
	w.interrupted(func(err error) error { return err })
	config := w.config()
	config.AckWait = time.Minute
	var handled consumertest.Calls
	w.run(config, handled.Handle)
	handled.Await(t, "1")
	w.settled()
	w.wantDead()
}

// A message is delivered MaxDeliveries times to processes that stop. The next process sees the message fail for the
// first time, and this failure is not the last one.
func TestFirstFailureAfterRestartsIsRetried(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("1")
	for range w.config().MaxDeliveries {
		w.interrupted(func(err error) error { return err })
	}
	w.publish("2")
	config := w.config()
	config.AckWait = time.Minute
	var handled consumertest.Calls
	w.run(config, func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		if m.ID == "2" || handled.Times(m.ID) == 1 {
			return errors.New("no such account")
		}
		return nil
	})
	w.settled()
	handled.Want(t, 2, "1")
	handled.Want(t, 3, "2")
	w.wantDead("2")
}

// A stream that was deleted and created anew has the old sequence numbers. Its dead letters are new ones.
func TestNewStreamKeepsItsDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"old", "new"} {
		w.publish(id)
		stop := w.run(w.config(), func(context.Context, *consumer.Message) error {
			return consumer.Reject(errors.New("unreadable"))
		})
		w.settled()
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := w.js.DeleteStream(t.Context(), "ORDERS"); err != nil {
			t.Fatal(err)
		}
		anew := jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}
		if _, err := w.js.CreateStream(t.Context(), anew); err != nil {
			t.Fatal(err)
		}
	}
	w.wantDead("old", "new")
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

// A handler that takes longer than AckWait keeps its message, and so do the messages that wait behind it.
func TestLongHandlerKeepsItsMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("1", "2")
	var handled consumertest.Calls
	w.run(w.config(), func(_ context.Context, m *consumer.Message) error {
		handled.Note(m)
		<-time.After(3 * time.Second)
		return nil
	})
	w.settled()
	handled.Want(t, 1, "1", "2")
}

// The server is killed twice under load. Every message takes effect once.
func TestKilledServerLosesNoMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := numbered(500)
	w.publish(ids...)
	config := w.config()
	config.Dedup, config.Concurrency = memory.New(1000), 4
	var handled consumertest.Calls
	var n atomic.Int64
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		<-time.After(5 * time.Millisecond)
		handled.Note(m)
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
	handled.Want(t, 1, ids...)
}

// At a stop, messages that wait go back, and running handlers finish.
func TestStopFinishesAndGivesBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish(numbered(10)...)
	begun, release := make(chan struct{}, 10), make(chan struct{})
	var first, second consumertest.Calls
	config := w.config()
	config.AckWait = time.Minute // a message that did not go back would come too late
	stop := w.run(config, func(_ context.Context, m *consumer.Message) error {
		first.Note(m)
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
	w.run(config, func(_ context.Context, m *consumer.Message) error { second.Note(m); return nil })
	w.settled()
	for _, id := range numbered(10) {
		if n := first.Times(id) + second.Times(id); n != 1 {
			t.Errorf("%s was handled %d times", id, n)
		}
	}
}

// queued runs a consumer without Dedup. The handler holds the first of five messages while the others wait, until
// release is closed. No message is redelivered because its time to be acknowledged has ended.
type queued struct {
	handled                   consumertest.Calls
	consuming, begun, release chan struct{}
	stop                      func() error
}

func (w *world) queued(config natsconsumer.Config) *queued {
	w.t.Helper()
	config.AckWait = time.Hour
	w.publish(numbered(5)...)
	q := &queued{
		consuming: make(chan struct{}, 10), begun: make(chan struct{}, 10), release: make(chan struct{}),
	}
	config.Consuming = func() { q.consuming <- struct{}{} }
	q.stop = w.run(config, func(_ context.Context, m *consumer.Message) error {
		q.handled.Note(m)
		if m.ID == "0" {
			q.begun <- struct{}{}
			<-q.release
		}
		return nil
	})
	<-q.consuming
	<-q.begun
	w.allReceived(5)
	return q
}

// allReceived waits until n messages are with the consumer.
func (w *world) allReceived(n int) {
	w.t.Helper()
	servers.Eventually(w.t, 30*time.Second, "the messages are received", func() bool {
		c, err := w.js.Consumer(w.t.Context(), "ORDERS", "payments")
		return err == nil && c.CachedInfo().NumAckPending == n
	})
}

// Messages that waited for a handler when the connection ended are left to the server, which delivers them again. The
// next connection handles what comes later.
func TestLostConnectionDropsItsQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	x := wire.TCP(t, wire.Host(t, w.server.URL))
	var log logs.Lines
	config := w.config()
	config.URL, config.Logger = x.URL(w.server.URL), slog.New(slog.NewTextHandler(&log, nil))
	q := w.queued(config)
	x.Disconnect()
	<-q.consuming
	close(q.release)
	servers.Eventually(t, time.Minute, "the first connection ends with its message", func() bool {
		return strings.Contains(log.String(), "acknowledgement not confirmed")
	})
	w.publish("later")
	servers.Eventually(t, time.Minute, "a later message is handled", func() bool { return q.handled.Times("later") == 1 })
	if err := q.stop(); err != nil {
		t.Error(err)
	}
	q.handled.Want(t, 1, "0")
	q.handled.Want(t, 0, numbered(5)[1:]...)
}

// Messages that waited for a handler when their consumer was deleted are handled by its successor alone.
func TestEndOfPullDropsItsQueue(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	q := w.queued(w.config())
	if err := w.js.DeleteConsumer(t.Context(), "ORDERS", "payments"); err != nil {
		t.Fatal(err)
	}
	<-q.consuming
	<-q.begun
	w.allReceived(5)
	close(q.release)
	w.settled()
	q.handled.Want(t, 2, "0")
	q.handled.Want(t, 1, numbered(5)[1:]...)
}

func TestConfigIsChecked(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]func(*natsconsumer.Config){
		"URL":         func(c *natsconsumer.Config) { c.URL = "nats://u:s3cr3t@h:port" },
		"stream":      func(c *natsconsumer.Config) { c.Stream = "" },
		"name":        func(c *natsconsumer.Config) { c.Name = "a.b" },
		"limit":       func(c *natsconsumer.Config) { c.DeadLetterStream = "" },
		"concurrency": func(c *natsconsumer.Config) { c.Concurrency = 21 },
		"retry":       func(c *natsconsumer.Config) { c.Retry = []time.Duration{0} },
		"language":    func(c *natsconsumer.Config) { c.Language = "de" },
	} {
		config := natsconsumer.Config{URL: "nats://h", Stream: "S", Name: "n", DeadLetterStream: "D", MaxDeliveries: 2}
		if _, err := natsconsumer.New(config); err != nil {
			t.Fatal(err)
		}
		spoil(&config)
		if _, err := natsconsumer.New(config); err == nil {
			t.Errorf("%s: the configuration was taken", name)
		}
	}
}
