package rabbitmqconsumer

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/consumer"
)

// Trigger sends messages that arrive at a queue after a delay, such as "check whether order 1001 is paid". They wait
// in a queue QUEUE.after.DELAY of the broker and survive its restarts. A delayed message of the coordinator is sent
// if, and only if, a transaction commits; a Trigger sends at once, whether a transaction commits or not. In both
// cases the handler checks the data again before acting. A Trigger is safe for concurrent use.
type Trigger struct {
	waiting string
	poster  poster
}

// NewTrigger describes a trigger. The first Send connects. The queue must exist when the delay ends: otherwise
// RabbitMQ keeps the message and retries only after minutes. URL and TLS are as in Config.
func NewTrigger(url string, tls *tls.Config, queue string, delay time.Duration) (*Trigger, error) {
	config, err := Config{URL: url, TLS: tls, Queue: queue}.withDefaults()
	if err != nil {
		return nil, err
	}
	if delay < time.Millisecond || delay%time.Millisecond != 0 {
		return nil, fmt.Errorf("a trigger's delay is one or more whole milliseconds, not %v", delay)
	}
	t := &Trigger{waiting: queue + ".after." + delay.String()}
	t.poster.connect = func(ctx context.Context) (*amqpconn.Conn, error) {
		// All callers share the established connection, and no caller's context ends the connection.
		conn, err := config.dialAny(ctx, "triggers")
		if err != nil {
			return nil, err
		}
		defer context.AfterFunc(ctx, conn.HangUp)()
		if err := t.declare(conn, queue, delay); err != nil {
			conn.CloseWithin(closeTimeout)
			return nil, err
		}
		return conn, nil
	}
	return t, nil
}

func (t *Trigger) declare(conn *amqpconn.Conn, queue string, delay time.Duration) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	if err := declareDelayQueue(ch, t.waiting, amqp.QueueTypeQuorum, route{"", queue}, delay); err != nil {
		return err
	}
	return ch.Close()
}

// Send sends a message and returns nil once the broker has acknowledged the message. Its ID, Producer, ContentType,
// Headers and Body arrive. After an error the broker may have the message: send the message again with the same ID.
func (t *Trigger) Send(ctx context.Context, m *consumer.Message) error {
	headers := amqp.Table{}
	for name, value := range m.Headers {
		headers[name] = value
	}
	return t.poster.post(ctx, "", t.waiting, amqp.Publishing{
		MessageId: m.ID, AppId: m.Producer, ContentType: m.ContentType, Headers: headers, Body: m.Body,
		Timestamp: time.Now(), DeliveryMode: amqp.Persistent,
	})
}

// Close ends the connection, if any.
func (t *Trigger) Close() { t.poster.close() }
