package shop_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/test/servers"
)

// Each event goes to its queue, a time-out waits for 15 minutes, and what a queue rejects is in the one dead-letter
// queue. The names are written out here, because other programs use them.
func TestTopologyRoutesEachEvent(t *testing.T) {
	t.Parallel()
	w := &world{T: t, amqp: servers.RabbitMQ(t).URL}
	w.connect()
	w.must(shop.Topology(shop.PayWithin, shop.Retries).Apply(t.Context(), w.amqp, nil))
	for key, queue := range map[string]string{
		"order.created": "inventory.update.queue", "order.paid": "order.fulfillment.queue",
		"order.status.changed": "order.status.sync.queue", "order.timeout": "order.timeout.queue",
	} {
		w.publish(key, key, []byte("{}"))
		w.eventually("the event is in "+queue, func() bool {
			d, there, err := w.ch.Get(queue, false)
			w.must(err)
			if there {
				w.must(d.Reject(false))
			}
			return there
		})
		dead := w.get("order.dlq.queue")
		if dead.MessageId != key || dead.Exchange != "order.events.exchange" || dead.RoutingKey != "order.dlq" {
			w.Errorf("the dead letter of %s is %s, by %s and %s", queue, dead.MessageId, dead.Exchange, dead.RoutingKey)
		}
	}
	w.publish("order.timeout.delay", "waiting", []byte("{}"))
	w.eventually("the time-out waits", func() bool { return w.depth("order.timeout.delay.queue") == 1 })
	// A declaration with another argument than the queue has is an error.
	_, err := w.ch.QueueDeclare("order.timeout.delay.queue", true, false, false, false, amqp.Table{
		"x-message-ttl": int64(15 * 60 * 1000), "x-dead-letter-exchange": "order.events.exchange",
		"x-dead-letter-routing-key": "order.timeout", "x-queue-type": "quorum",
		"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish",
	})
	w.must(err)
}
