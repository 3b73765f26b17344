package rabbitmq_test

import (
	"context"
	"errors"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// A queue that is deleted and made again is consumed, by whichever side it is made.
func TestQueueMadeAgainIsConsumed(t *testing.T) {
	t.Parallel()
	for name, declares := range map[string]bool{"by the consumer": true, "by an operator": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			config, handled := b.config(), make(chan string, 100)
			if !declares {
				config.Declare = nil
				makeQueue(b, amqp.QueueTypeQuorum)
			}
			b.start(config, func(_ context.Context, m *consumer.Message) error {
				handled <- m.ID
				return nil
			})
			b.publish(1, 1)
			take(t, handled, "a message of the first queue")
			if _, err := b.ch.QueueDelete("payments", false, false, false); err != nil {
				t.Fatal(err)
			}
			if !declares {
				makeQueue(b, amqp.QueueTypeClassic)
			}
			b.waitForQueue("payments")
			b.publish(2, 2)
			if id := take(t, handled, "a message of the second queue"); id != "2" {
				t.Errorf("handled %s", id)
			}
		})
	}
}

// makeQueue makes the queue, and binds it to a new exchange.
func makeQueue(b *bench, kind string) {
	b.Helper()
	_, err := b.ch.QueueDeclare("payments", true, false, false, false, amqp.Table{amqp.QueueTypeArg: kind})
	if err == nil {
		err = b.ch.ExchangeDeclare("orders", amqp.ExchangeTopic, true, false, false, false, nil)
	}
	if err == nil {
		err = b.ch.QueueBind("payments", "#", "orders", false, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// An operator deletes the exchanges and the queues beside the consumed queue. The broker tells no consumer: without its
// binding the queue would get no message, and a failed message no place.
func TestDeletedTopologyIsDeclaredAgain(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config, handled := b.delayed(20*time.Millisecond), make(chan string, 1000)
	config.DepthInterval = 50 * time.Millisecond
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		handled <- m.ID
		return errors.New("no such account")
	})
	for _, exchange := range []string{"orders", "dead"} {
		if err := b.ch.ExchangeDelete(exchange, false, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range []string{"payments.retry.20ms", "payments.dead"} {
		if _, err := b.ch.QueueDelete(queue, false, false, false); err != nil {
			t.Fatal(err)
		}
	}
	servers.Eventually(t, patience, "a message is handled", func() bool {
		newBenchOn(t, b).publish(1, 1)
		return len(handled) > 0
	})
	servers.Eventually(t, patience, "the dead-letter queue is there", func() bool {
		_, err := newBenchOn(t, b).ch.QueueDeclarePassive("payments.dead", true, false, false, false, nil)
		return err == nil
	})
	if dead := b.get("payments.dead"); dead.MessageId != "1" || dead.Headers[consumer.HeaderRetries] != int64(1) {
		t.Errorf("the dead letter is %+v", dead)
	}
}
