package rabbitmq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// behindSilence are two nodes of a cluster: the first accepts connections and says nothing.
func (b *bench) behindSilence() (urls string) {
	first := wire.TCP(b, wire.Host(b, b.vhost.URL))
	first.Silence()
	return first.URL(b.vhost.URL) + ", " + b.vhost.URL
}

func TestSilentNodeBlocksNoRetry(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config := b.delayed(time.Millisecond)
	config.URL = b.behindSilence()
	b.start(config, func(_ context.Context, m *consumer.Message) error { return errors.New("not now") })
	b.publish(1, 1)
	if dead := b.get("payments.dead"); dead.Headers[consumer.HeaderRetries] != int64(1) {
		t.Errorf("%v", dead.Headers)
	}
}

func TestSilentNodeBlocksNoTrigger(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if _, err := b.ch.QueueDeclare("payments", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	trigger, err := rabbit.NewTrigger(b.behindSilence(), nil, "payments", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(trigger.Close)
	// On a busy machine the remaining time may be too short for all calls.
	servers.Eventually(t, patience, "the trigger is sent", func() bool {
		return trigger.Send(t.Context(), &consumer.Message{ID: "1", Producer: "orders"}) == nil
	})
	b.get("payments")
}
