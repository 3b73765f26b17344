package nats_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

func (w *world) deadLetters() *consumer.DeadLetters {
	w.t.Helper()
	d, err := natsconsumer.NewDeadLetters(w.server.URL, nil, "DEAD")
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

// holds demands the number of messages of a stream.
func (w *world) holds(stream string, want int) {
	w.t.Helper()
	s, err := w.js.Stream(w.t.Context(), stream)
	if err != nil {
		w.t.Fatal(err)
	}
	if n := s.CachedInfo().State.Msgs; n != uint64(want) {
		w.t.Errorf("%s has %d messages, want %d", stream, n, want)
	}
}

// bury puts letters into the dead-letter stream, as a consumer does. more are pairs of a header and its value.
func (w *world) bury(id string, more ...string) {
	w.t.Helper()
	m := client.NewMsg("DEAD.orders.paid")
	m.Data = []byte("paid " + id)
	for key, value := range map[string]string{
		"msghandler-id": id, "msghandler-producer": "orders", "msghandler-attempt": "1", consumer.HeaderExchange: "ORDERS",
		consumer.HeaderRoutingKey: "orders.paid", consumer.HeaderQueue: "payments", consumer.HeaderDeadReason: "no JSON",
	} {
		m.Header.Set(key, value)
	}
	for i := 0; i < len(more); i += 2 {
		m.Header.Set(more[i], more[i+1])
	}
	if _, err := w.js.PublishMsg(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

// The original message is still within the window of the stream's deduplication, with the id of the coordinator.
func TestStreamTakesReplayForNoDuplicate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	original := client.NewMsg("orders.paid")
	original.Header.Set(client.MsgIdHdr, "orders/1")
	if _, err := w.js.PublishMsg(t.Context(), original); err != nil {
		t.Fatal(err)
	}
	w.bury("1", client.MsgIdHdr, "orders/1")
	if n, err := w.deadLetters().Replay(t.Context(), consumer.Anywhere); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	w.holds("ORDERS", 2)
}

func second(_ int, err error) error { return err }

// A letter that its stream does not take stays, and the others are replayed.
func TestLetterWithoutAPlaceStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	interest := jetstream.StreamConfig{
		Name: "INTEREST", Subjects: []string{"interest.>"}, Retention: jetstream.InterestPolicy,
	}
	if _, err := w.js.CreateStream(t.Context(), interest); err != nil {
		t.Fatal(err)
	}
	w.bury("gone", consumer.HeaderExchange, "GONE", consumer.HeaderRoutingKey, "gone.paid")
	w.bury("foreign", consumer.HeaderExchange, "DEAD") // ORDERS takes the subject
	w.bury("command", consumer.HeaderRoutingKey, "$JS.API.STREAM.DELETE.ORDERS")
	w.bury("dropped", consumer.HeaderExchange, "INTEREST", consumer.HeaderRoutingKey, "interest.paid")
	w.bury("nameless", consumer.HeaderExchange, "", consumer.HeaderRoutingKey, "")
	w.bury("good")
	dead := w.deadLetters()
	n, err := dead.Replay(t.Context(), consumer.Anywhere)
	if n != 1 || err == nil {
		t.Fatalf("replayed %d, %v", n, err)
	}
	for _, want := range []string{
		"replay orders/gone: look up the stream", "replay orders/foreign: refused by the stream", "replay orders/command: ",
		"the server's own", "replay orders/dropped: the stream \"INTEREST\" drops messages", "replay orders/nameless: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	w.holds("DEAD", 5)
	w.holds("ORDERS", 1)
	if l, err := dead.Show(t.Context(), "orders/nameless"); err != nil || l.RoutingKey != "orders.paid" {
		t.Errorf("%+v, %v", l, err)
	}
}

func TestStreamsOfEachKindAreRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, config := range map[string]jetstream.StreamConfig{
		"DIRECT": {AllowDirect: true}, "WORK": {Retention: jetstream.WorkQueuePolicy},
		"MEMORY": {Storage: jetstream.MemoryStorage},
	} {
		config.Name, config.Subjects = name, []string{name + ".>"}
		if _, err := w.js.CreateStream(t.Context(), config); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if _, err := w.js.Publish(t.Context(), name+".orders.paid", []byte("paid")); err != nil {
				t.Fatal(err)
			}
		}
		dead, err := natsconsumer.NewDeadLetters(w.server.URL, nil, name)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := dead.DiscardSelected(t.Context(), consumer.Selection{Limit: 1}); n != 1 || err != nil {
			t.Errorf("%s: discarded %d, %v", name, n, err)
		}
		if found, err := dead.List(t.Context(), 10); len(found) != 2 || err != nil || string(found[1].Body) != "paid" {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}

func TestStreamThatKeepsLettersIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := jetstream.StreamConfig{Name: "KEPT", Subjects: []string{"KEPT.>"}, DenyDelete: true}
	if _, err := w.js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	m := client.NewMsg("KEPT.orders.paid")
	m.Header.Set(consumer.HeaderExchange, "ORDERS")
	m.Header.Set(consumer.HeaderRoutingKey, "orders.paid")
	if _, err := w.js.PublishMsg(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	dead, err := natsconsumer.NewDeadLetters(w.server.URL, nil, "KEPT")
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		second(dead.Replay(t.Context(), consumer.Anywhere)), second(dead.Discard(t.Context(), "/")),
	} {
		if err == nil || !strings.Contains(err.Error(), "nothing was changed") {
			t.Error(err)
		}
	}
	w.holds("ORDERS", 0)
}

// The user may publish a replay and not remove the letter. When the permission is granted, the repeated replay is
// stored once.
func TestInterruptedReplayIsStoredOnce(t *testing.T) {
	t.Parallel()
	const users = `authorization { users: [
		{ user: admin, password: a }
		{ user: operator, password: o, permissions: { publish: { allow: [">"], deny: [%s] }, subscribe: ">" } } ] }`
	deny := func(subject string) string { return strings.Replace(users, "%s", subject, 1) }
	w := &world{t: t, server: servers.NATS(t, deny(`"$JS.API.STREAM.MSG.DELETE.>"`))}
	login := func(user string) string { return strings.Replace(w.server.URL, "nats://", "nats://"+user+"@", 1) }
	w.js = natsserver.Stream(t, login("admin:a"), "ORDERS", "orders.>")
	config := jetstream.StreamConfig{Name: "DEAD", Subjects: []string{"DEAD.>"}}
	if _, err := w.js.CreateStream(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.bury("1")
	dead, err := natsconsumer.NewDeadLetters(login("operator:o"), nil, "DEAD")
	if err != nil {
		t.Fatal(err)
	}
	n, err := dead.Replay(t.Context(), consumer.Anywhere, "orders/1")
	if n != 1 || err == nil || !strings.Contains(err.Error(), "may not publish to $JS.API.STREAM.MSG.DELETE.DEAD") {
		t.Errorf("replayed %d, %v", n, err)
	}
	w.holds("DEAD", 1)
	w.server.Configure(deny(`"nothing"`))
	if n, err := dead.Replay(t.Context(), consumer.Anywhere, "orders/1"); n != 1 || err != nil {
		t.Errorf("replayed %d, %v", n, err)
	}
	w.holds("DEAD", 0)
	w.holds("ORDERS", 1)
}

// The server is killed while letters are replayed. Repeated replays bring every message back once.
func TestKilledServerLosesNoLetter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const letters = 300
	for _, id := range numbered(letters) {
		w.bury(id)
	}
	dead := w.deadLetters()
	replayed := make(chan error, 1)
	go func() {
		_, err := dead.Replay(t.Context(), consumer.Anywhere)
		replayed <- err
	}()
	servers.Eventually(t, time.Minute, "some are replayed", func() bool {
		stream, err := w.js.Stream(t.Context(), "ORDERS")
		return err == nil && stream.CachedInfo().State.Msgs >= letters/10
	})
	w.server.Kill()
	<-replayed
	w.server.Start()
	servers.Eventually(t, time.Minute, "all are replayed", func() bool {
		_, err := dead.Replay(t.Context(), consumer.Anywhere)
		return err == nil
	})
	w.holds("DEAD", 0)
	w.holds("ORDERS", letters)
}

func TestDeadLettersNameTheMissingStream(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"", "DEAD.>"} {
		if _, err := natsconsumer.NewDeadLetters(w.server.URL, nil, name); err == nil {
			t.Errorf("the name %q was taken", name)
		}
	}
	dead, err := natsconsumer.NewDeadLetters(w.server.URL, nil, "NONE")
	if err != nil {
		t.Fatal(err)
	}
	_, err = dead.List(t.Context(), 1)
	if !errors.Is(err, jetstream.ErrStreamNotFound) || !strings.Contains(err.Error(), "NONE") {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if _, err := w.deadLetters().List(ctx, 1); err == nil {
		t.Error("a context without time was taken")
	}
}
