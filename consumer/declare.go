package consumer

import (
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Declare says what to make on the broker before consuming, all of it durable. What exists already with the same
// properties is left as it is; where the properties differ, Run fails.
type Declare struct {
	// Exchange is the exchange that the queue is bound to, by each of BindingKeys. Empty: nothing is bound.
	Exchange string
	// ExchangeType is topic, direct, fanout or headers. Default: topic.
	ExchangeType string
	// BindingKeys default to one that is "#", everything on a topic exchange.
	BindingKeys []string
	// QueueType is quorum or classic. Default: quorum, which counts deliveries.
	QueueType string
	// DeadLetterExchange is the direct exchange to which rejected messages go. Empty: they are dropped.
	DeadLetterExchange string
	// DeadLetterQueue is made and bound to DeadLetterExchange. Default: the queue's name and ".dead".
	DeadLetterQueue string
	// DeliveryLimit is how often a quorum queue delivers a message again before it goes to DeadLetterExchange. 0: the
	// broker's own default, which is none before RabbitMQ 4.0.
	DeliveryLimit int
}

func (d *Declare) check() error {
	switch {
	case d.QueueType != "" && d.QueueType != amqp.QueueTypeQuorum && d.QueueType != amqp.QueueTypeClassic:
		return fmt.Errorf("consumer.Config: Declare.QueueType is %q; it must be quorum or classic", d.QueueType)
	case d.DeliveryLimit < 0 || d.DeliveryLimit > 0 && d.QueueType == amqp.QueueTypeClassic:
		return fmt.Errorf("consumer.Config: Declare.DeliveryLimit is %d; it must be positive, and only a quorum queue has one",
			d.DeliveryLimit)
	case d.DeliveryLimit > 0 && d.DeadLetterExchange == "":
		return fmt.Errorf("consumer.Config: Declare.DeliveryLimit without Declare.DeadLetterExchange would drop messages")
	}
	return nil
}

// on makes it all, for that queue.
func (d *Declare) on(ch *amqp.Channel, queue string) error {
	args := amqp.Table{amqp.QueueTypeArg: or(d.QueueType, amqp.QueueTypeQuorum)}
	if d.DeadLetterExchange != "" {
		if err := d.deadLetters(ch, queue); err != nil {
			return err
		}
		args["x-dead-letter-exchange"] = d.DeadLetterExchange
		args["x-dead-letter-routing-key"] = queue
	}
	if d.DeliveryLimit > 0 {
		args["x-delivery-limit"] = int64(d.DeliveryLimit)
	}
	if _, err := ch.QueueDeclare(queue, true, false, false, false, args); err != nil {
		return fmt.Errorf("declare queue %q: %w", queue, err)
	}
	if d.Exchange == "" {
		return nil
	}
	if err := ch.ExchangeDeclare(d.Exchange, or(d.ExchangeType, "topic"), true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare exchange %q: %w", d.Exchange, err)
	}
	keys := d.BindingKeys
	if len(keys) == 0 {
		keys = []string{"#"}
	}
	for _, key := range keys {
		if err := ch.QueueBind(queue, key, d.Exchange, false, nil); err != nil {
			return fmt.Errorf("bind queue %q to exchange %q by %q: %w", queue, d.Exchange, key, err)
		}
	}
	return nil
}

// deadLetters makes the place for rejected messages. It is bound by the queue's name, so that several queues may share
// the exchange.
func (d *Declare) deadLetters(ch *amqp.Channel, queue string) error {
	dead := or(d.DeadLetterQueue, queue+".dead")
	if err := ch.ExchangeDeclare(d.DeadLetterExchange, "direct", true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare dead-letter exchange %q: %w", d.DeadLetterExchange, err)
	}
	args := amqp.Table{amqp.QueueTypeArg: or(d.QueueType, amqp.QueueTypeQuorum)}
	if _, err := ch.QueueDeclare(dead, true, false, false, false, args); err != nil {
		return fmt.Errorf("declare dead-letter queue %q: %w", dead, err)
	}
	if err := ch.QueueBind(dead, queue, d.DeadLetterExchange, false, nil); err != nil {
		return fmt.Errorf("bind dead-letter queue %q: %w", dead, err)
	}
	return nil
}

func or(given, otherwise string) string {
	if given == "" {
		return otherwise
	}
	return given
}
