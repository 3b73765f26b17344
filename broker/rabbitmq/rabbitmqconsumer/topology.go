package rabbitmqconsumer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Topology describes all queues of a group of consumers in one place: an exchange for their events, a queue for each
// consumer, and one dead-letter queue. Events, waiting messages and dead letters go through the same exchange and
// differ by their routing keys.
//
//	var orders = rabbitmqconsumer.Topology{
//		Exchange: "order.events", DeadLetterKey: "order.dlq", DeadLetterQueue: "order.dlq.queue",
//		Queues: []rabbitmqconsumer.TopologyQueue{
//			{Name: "inventory", BindingKeys: []string{"order.created"}},
//			{Name: "timeouts", BindingKeys: []string{"order.timeout"}, Hold: &rabbitmqconsumer.Hold{
//				Queue: "timeouts.delay", BindingKey: "order.timeout.delay", Delay: 15 * time.Minute, ReleaseKey: "order.timeout",
//			}},
//		},
//	}
//
// A consumer takes its part from For. A publisher calls Apply before the first message, so that no message is
// unroutable before its consumer has started.
type Topology struct {
	// Exchange is the exchange of events and dead letters.
	Exchange string
	// ExchangeType is topic or direct. Default: topic.
	ExchangeType string
	// QueueType is quorum or classic, for all queues. Default: quorum.
	QueueType string
	// DeadLetterKey is the routing key of dead letters of all queues, and DeadLetterQueue the queue bound by this key.
	DeadLetterKey, DeadLetterQueue string
	// DeliveryLimit, Delays and RetryLimit are those of Declare, for all queues.
	DeliveryLimit int
	Delays        []time.Duration
	RetryLimit    int
	// Queues are the consumed queues.
	Queues []TopologyQueue
}

// TopologyQueue is a consumed queue of a Topology.
type TopologyQueue struct {
	// Name is the queue's name.
	Name string
	// BindingKeys bind the queue to Topology.Exchange. At least one must be given.
	BindingKeys []string
	// Hold is a queue in which messages wait before they reach this queue. Nil: none.
	Hold *Hold
}

// For returns the part of a queue, for Config.Declare.
func (t *Topology) For(queue string) (*Declare, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(t.Queues, func(q TopologyQueue) bool { return q.Name == queue })
	if i < 0 {
		return nil, fmt.Errorf("rabbitmqconsumer.Topology: no queue %q is described", queue)
	}
	return t.declare(t.Queues[i]), nil
}

// Apply declares all exchanges, queues and bindings on the broker. Existing ones with the same properties are kept;
// for other properties Apply fails with a MismatchError. URL and TLS are as in Config.
func (t *Topology) Apply(ctx context.Context, url string, tls *tls.Config) error {
	if err := t.check(); err != nil {
		return err
	}
	config, err := Config{URL: url, TLS: tls, Queue: t.DeadLetterQueue}.withDefaults()
	if err != nil {
		return err
	}
	conn, err := config.dialAny(ctx, "declarations")
	if err != nil {
		return err
	}
	defer conn.CloseWithin(closeTimeout)
	defer context.AfterFunc(ctx, conn.HangUp)()
	defer conn.Guard(setUpTimeout)()
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	for _, q := range t.Queues {
		if err := t.declare(q).apply(conn, ch, q.Name, config.Logger); err != nil {
			return err
		}
	}
	return ch.Close()
}

func (t *Topology) declare(q TopologyQueue) *Declare {
	return &Declare{
		Exchange: t.Exchange, ExchangeType: t.ExchangeType, BindingKeys: q.BindingKeys, QueueType: t.QueueType,
		DeadLetterExchange: t.Exchange, DeadLetterKey: t.DeadLetterKey, DeadLetterQueue: t.DeadLetterQueue,
		DeliveryLimit: t.DeliveryLimit, Delays: t.Delays, RetryLimit: t.RetryLimit, Hold: q.Hold,
	}
}

func (t *Topology) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("rabbitmqconsumer.Topology: "+format, args...))
	}
	if t.Exchange == "" || t.DeadLetterKey == "" || t.DeadLetterQueue == "" || len(t.Queues) == 0 {
		wrong("Exchange, DeadLetterKey, DeadLetterQueue and Queues must be given")
	}
	names := map[string]bool{t.DeadLetterQueue: true}
	add := func(name string) {
		if name == "" || names[name] {
			wrong("the queue name %q is empty or occurs twice", name)
		}
		names[name] = true
	}
	for _, q := range t.Queues {
		add(q.Name)
		if q.Hold != nil {
			add(q.Hold.Queue)
		}
		if len(q.BindingKeys) == 0 {
			wrong("queue %q has no BindingKeys", q.Name)
			continue
		}
		if err := t.declare(q).check(); err != nil {
			wrong("queue %q: %w", q.Name, err)
		}
	}
	return errors.Join(errs...)
}
