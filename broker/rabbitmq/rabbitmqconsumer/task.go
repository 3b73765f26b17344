package rabbitmqconsumer

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// maxKept is how long a message is kept after its first handling. By default RabbitMQ closes the channel of a client
// that leaves a delivery unsettled for 30 minutes, and then redelivers every message of the channel.
const maxKept = 10 * time.Minute

// task is a delivery that is being handled or kept.
type task struct {
	amqp.Delivery
	// returns is how many deliveries of the message count against the queue's delivery limit.
	returns int
	// kept is how often the message was kept to be handled again, since is the first time, and due the next.
	kept  int
	since time.Time
	due   time.Time
}

// intake holds the deliveries of one connection.
type intake struct {
	deliveries <-chan amqp.Delivery
	// again takes kept messages that are due.
	again chan *task
	// over is closed when no more deliveries are taken.
	over chan struct{}
}

func newIntake(deliveries <-chan amqp.Delivery) *intake {
	return &intake{deliveries: deliveries, again: make(chan *task), over: make(chan struct{})}
}

// wait holds a kept message until it is due and the intake takes it. At a stop, or after maxKept, the message is
// returned to the queue.
func (r *run) wait(in *intake, t *task) {
	_ = backoff.Sleep(r.stopping, time.Until(t.due))
	if time.Since(t.since) < maxKept && !r.stopped() {
		select {
		case in.again <- t:
			return
		case <-in.over:
			if !r.stopped() {
				return // the broken connection has returned the message already; a copy would be a second one
			}
		}
	}
	m, _ := newMessage(&t.Delivery)
	if !r.stopped() && r.parks() && r.poster.post(r.work, "", r.Queue, kept(&t.Delivery, m)) == nil {
		r.answer(m, t.Ack(false)) // a return would count as a failed delivery before RabbitMQ 4.3
		return
	}
	r.answer(m, t.Nack(false, true))
}

// kept is the copy by which a kept message goes back to its queue. The default exchange delivers the copy, so headers
// name the exchange and the routing key of the message.
func kept(d *amqp.Delivery, m *consumer.Message) amqp.Publishing {
	p := republishing(d)
	p.Headers[consumer.HeaderExchange], p.Headers[consumer.HeaderRoutingKey] = m.Exchange, m.RoutingKey
	return p
}

// giveBackRest stops consuming, and returns deliveries that were not begun. Closing the channel would return them
// too, but every RabbitMQ counts that as a delivery.
func giveBackRest(ch *amqp.Channel, tag string, deliveries <-chan amqp.Delivery) {
	if ch.Cancel(tag, false) != nil {
		return // the connection is lost
	}
	for d := range deliveries {
		_ = d.Nack(false, true) // a lost connection returns the message
	}
}
