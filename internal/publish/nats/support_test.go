package nats_test

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/nats"
	"github.com/msghandler/msghandler/test/servers"
)

// publisher starts one that is ready and closed when the test ends.
func publisher(t testing.TB, config nats.Config) *nats.Publisher {
	t.Helper()
	p := open(t, config)
	ready(t, p)
	return p
}

// open starts a publisher that is closed when the test ends.
func open(t testing.TB, config nats.Config) *nats.Publisher {
	t.Helper()
	config.Logger = slog.New(slog.NewTextHandler(testWriter{t}, nil))
	p, err := nats.New(config.Quick())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closePublisher(t, p, 15*time.Second) })
	return p
}

func ready(t testing.TB, p *nats.Publisher) {
	t.Helper()
	servers.Eventually(t, 30*time.Second, "the publisher is ready", func() bool { return p.Ready() == nil })
}

// closePublisher closes it and fails the test when that takes longer than within.
func closePublisher(t testing.TB, p *nats.Publisher, within time.Duration) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if err := p.Close(ctx); err != nil {
		t.Errorf("close: %v", err)
	}
}

// testWriter writes logs into the test's own.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// admin is a test's own connection, to make streams and to look. It reconnects by itself.
type admin struct {
	t  testing.TB
	js jetstream.JetStream
}

func connect(t testing.TB, url string) *admin {
	t.Helper()
	conn, err := client.Connect(url, client.MaxReconnects(-1), client.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return &admin{t: t, js: js}
}

// stream makes a stream with these subjects.
func (a *admin) stream(name string, subjects ...string) {
	a.t.Helper()
	a.make(jetstream.StreamConfig{Name: name, Subjects: subjects})
}

// make makes a stream, as soon as the servers can.
func (a *admin) make(config jetstream.StreamConfig) {
	a.t.Helper()
	var err error
	servers.Eventually(a.t, time.Minute, "the stream is made", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_, err = a.js.CreateStream(ctx, config)
		if err != nil {
			a.t.Logf("make the stream %s: %v", config.Name, err)
		}
		return err == nil
	})
}

// read returns the messages of a stream, from a sequence number on.
func (a *admin) read(name string, from uint64) (all []*jetstream.RawStreamMsg) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	stream, err := a.js.Stream(ctx, name)
	if err != nil {
		a.t.Fatal(err)
	}
	for n := max(from, 1); n <= stream.CachedInfo().State.LastSeq; n++ {
		m, err := stream.GetMsg(ctx, n)
		if err != nil {
			a.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// ids are the message ids in a stream, with the number of their copies.
func (a *admin) ids(name string) map[string]int {
	a.t.Helper()
	copies := map[string]int{}
	for _, m := range a.read(name, 1) {
		copies[m.Header.Get("msghandler-id")]++
	}
	return copies
}

// message is one for a stream and a subject, with a name made of its number.
func message(n int, stream, subject string) halfmsg.Publishing {
	return halfmsg.Publishing{
		Name:       halfmsg.Name{Producer: "orders", ID: fmt.Sprint(n)},
		Exchange:   stream,
		RoutingKey: subject,
		Body:       fmt.Appendf(nil, "body of %d", n),
		DueAt:      time.Unix(1_700_000_000, 0),
		Attempt:    1,
	}
}

// messages are n of them.
func messages(n int, stream, subject string) []halfmsg.Publishing {
	batch := make([]halfmsg.Publishing, n)
	for i := range batch {
		batch[i] = message(i, stream, subject)
	}
	return batch
}

// expect fails the test when a result has another outcome.
func expect(t testing.TB, results []halfmsg.PublishResult, want halfmsg.Outcome) {
	t.Helper()
	for i, r := range results {
		if r.Outcome != want {
			t.Fatalf("message %d of %d is %v (%v), want %v; all: %v", i, len(results), r.Outcome, r.Cause, want, count(results))
		}
		if (r.Cause == nil) != (want == halfmsg.Acked) {
			t.Fatalf("message %d is %v with the cause %v", i, r.Outcome, r.Cause)
		}
	}
}

// count counts outcomes.
func count(results []halfmsg.PublishResult) map[halfmsg.Outcome]int {
	counts := make(map[halfmsg.Outcome]int)
	for _, r := range results {
		counts[r.Outcome]++
	}
	return counts
}

func outcome(t testing.TB, p *nats.Publisher, m halfmsg.Publishing) halfmsg.PublishResult {
	t.Helper()
	return publish(t.Context(), p, []halfmsg.Publishing{m})[0]
}

// publish publishes a batch and returns all outcomes, in its order.
func publish(ctx context.Context, p *nats.Publisher, batch []halfmsg.Publishing) []halfmsg.PublishResult {
	results := make([]halfmsg.PublishResult, len(batch))
	p.Publish(ctx, batch, func(places []int, some []halfmsg.PublishResult) {
		for n, i := range places {
			results[i] = some[n]
		}
	})
	return results
}
