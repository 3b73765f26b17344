package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/servers"
)

// A passive declare of a missing queue closes its channel, which must not be the consuming channel.
func TestConsumingNeedsNoDeadLetterQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config, observed := b.config(), &consumertest.Depths{}
	config.Observer, config.DepthInterval = observed, 20*time.Millisecond
	sessions, handled := make(chan struct{}, 10), make(chan string, 10)
	config.Consuming = func() { sessions <- struct{}{} }
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		handled <- m.ID
		return nil
	})
	take(t, sessions, "consuming")
	if _, err := b.ch.QueueDelete("payments.dead", false, false, false); err != nil {
		t.Fatal(err)
	}
	asked := observed.Reports()
	servers.Eventually(t, patience, "further reports", func() bool { return observed.Reports() > asked+5 })
	b.publish(1, 1)
	take(t, handled, "a message that is handled")
	if len(sessions) != 0 {
		t.Error("the session broke")
	}
}
