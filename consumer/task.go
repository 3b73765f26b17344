package consumer

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/backoff"
)

// maxKept is how long a message is kept after it was handled first. RabbitMQ closes the channel of a client that does not
// settle a delivery within 30 minutes by default, and then every message of the channel comes back.
const maxKept = 10 * time.Minute

// task is a delivery in hand.
type task struct {
	amqp.Delivery
	// kept is how often the message was kept to be handled again, since is the first time, and due the next.
	kept  int
	since time.Time
	due   time.Time
}

// intake is where the deliveries of one connection come from.
type intake struct {
	deliveries <-chan amqp.Delivery
	// again takes messages that were kept and are due.
	again chan *task
	// over is closed when nothing is taken any more.
	over chan struct{}
}

func newIntake(deliveries <-chan amqp.Delivery) *intake {
	return &intake{deliveries: deliveries, again: make(chan *task), over: make(chan struct{})}
}

// wait holds a kept message until it is due and the intake takes it. A stop, or keeping it for too long, gives it back.
func (r *run) wait(in *intake, t *task) {
	_ = backoff.Sleep(r.stopping, time.Until(t.due))
	if time.Since(t.since) < maxKept && !r.stopped() {
		select {
		case in.again <- t:
			return
		case <-in.over: // a broken connection gave it back already
		}
	}
	r.answer(newMessage(&t.Delivery), t.Nack(false, true))
}

// giveBackRest stops consuming, and gives back what was received and not begun. Closing the channel gives it back too, and
// every RabbitMQ counts that as a delivery.
func giveBackRest(ch *amqp.Channel, tag string, deliveries <-chan amqp.Delivery) {
	if ch.Cancel(tag, false) != nil {
		return // the connection is lost
	}
	for d := range deliveries {
		_ = d.Nack(false, true) // a lost connection gives it back
	}
}
