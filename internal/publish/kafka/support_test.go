package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/kafka"
	"github.com/msghandler/msghandler/test/servers"
)

// publisher starts one that is ready and closed when the test ends.
func publisher(t testing.TB, url string, confirmTimeout time.Duration) *kafka.Publisher {
	t.Helper()
	p := open(t, url, confirmTimeout)
	t.Cleanup(func() { closePublisher(t, p, 15*time.Second) })
	ready(t, p)
	return p
}

func ready(t testing.TB, p *kafka.Publisher) {
	t.Helper()
	servers.Eventually(t, 30*time.Second, "the publisher is ready", func() bool { return p.Ready() == nil })
}

// closePublisher closes it and fails the test when that takes longer than within.
func closePublisher(t testing.TB, p *kafka.Publisher, within time.Duration) {
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

func message(n int, topic, key string) halfmsg.Publishing {
	return halfmsg.Publishing{
		Name: halfmsg.Name{Producer: "orders", ID: fmt.Sprint(n)}, Exchange: topic, RoutingKey: key,
		Body: fmt.Appendf(nil, "body of %d", n), DueAt: time.Unix(1_700_000_000, 0), Attempt: 1,
	}
}

func messages(n int, topic, key string) []halfmsg.Publishing {
	batch := make([]halfmsg.Publishing, n)
	for i := range batch {
		batch[i] = message(i, topic, key)
	}
	return batch
}

// publish publishes a batch and returns all outcomes, in its order.
func publish(ctx context.Context, p *kafka.Publisher, batch []halfmsg.Publishing) []halfmsg.PublishResult {
	outcomes := make([]halfmsg.PublishResult, len(batch))
	p.Publish(ctx, batch, func(places []int, results []halfmsg.PublishResult) {
		for n, i := range places {
			outcomes[i] = results[n]
		}
	})
	return outcomes
}

// expect fails the test when a result has another outcome.
func expect(t testing.TB, results []halfmsg.PublishResult, want halfmsg.Outcome) {
	t.Helper()
	for i, r := range results {
		if r.Outcome != want {
			t.Fatalf("message %d of %d is %v (%v), want %v; all: %v", i, len(results), r.Outcome, r.Cause, want, count(results))
		}
	}
}

// awaitAcked publishes messages to a topic until the cluster acknowledges one.
func awaitAcked(t testing.TB, p *kafka.Publisher, topic string) {
	t.Helper()
	servers.Eventually(t, time.Minute, "a message is acknowledged", func() bool {
		return publish(t.Context(), p, messages(1, topic, "k"))[0].Outcome == halfmsg.Acked
	})
}

func count(results []halfmsg.PublishResult) map[halfmsg.Outcome]int {
	counts := make(map[halfmsg.Outcome]int)
	for _, r := range results {
		counts[r.Outcome]++
	}
	return counts
}
