package kafka_test

import (
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/kafka"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
)

// The suite's helpers.
var (
	ready          = publishtest.Ready
	closePublisher = publishtest.Close
	messages       = publishtest.Messages
	expect         = publishtest.Expect
	count          = publishtest.Count
	publishAll     = publishtest.Publish
)

// publisher starts a publisher that is ready, and closed when the test ends.
func publisher(t testing.TB, url string, confirmTimeout time.Duration) *kafka.Publisher {
	t.Helper()
	p := open(t, url, confirmTimeout)
	t.Cleanup(func() { closePublisher(t, p, 15*time.Second) })
	ready(t, p)
	return p
}

// awaitAcked publishes messages to a topic until the cluster acknowledges one.
func awaitAcked(t testing.TB, p *kafka.Publisher, topic string) {
	t.Helper()
	servers.Eventually(t, time.Minute, "a message is acknowledged", func() bool {
		return publishAll(t.Context(), p, messages(1, topic, "k"))[0].Outcome == publish.Acked
	})
}
