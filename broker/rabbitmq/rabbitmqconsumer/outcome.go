package rabbitmqconsumer

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// settle gives the broker the result of a message that was handled with err, or keeps the message. A message is never
// acknowledged before its copy is safe.
func (r *run) settle(t *task, m *consumer.Message, err error) consumer.Result {
	switch adapter.Decide(r.work, err) {
	case adapter.Acknowledge:
		r.answer(m, t.Ack(false))
		return consumer.Effect
	case adapter.Drop:
		r.log().Dropped(m)
		r.answer(m, t.Ack(false))
		return consumer.Duplicate
	case adapter.DeadLetter:
		return r.deadLetter(t, m, err)
	case adapter.GiveBack:
		return r.giveBack(t, m, err)
	case adapter.Keep:
		return r.keep(t, m, err)
	case adapter.Retry:
	}
	switch {
	case !r.parks():
		return r.requeue(t, m, err)
	case m.Retries >= r.Declare.retryLimit():
		return r.deadLetter(t, m, err)
	}
	return r.park(t, m, err)
}

// farMore is how often the queue must have got a message back, where failed messages wait elsewhere, before the message
// becomes a dead letter without its handler. RabbitMQ has had this limit of its own since 4.0.
const farMore = 20

// overDelivered rejects a message that ends the processes which handle it: no process lives to see it fail. Only a
// quorum queue counts deliveries.
func (r *run) overDelivered(t *task) error {
	if !r.parks() || t.returns <= farMore {
		return nil
	}
	return consumer.Reject(fmt.Errorf("returned to the queue %d times, and no process told how its handling ended: "+
		"does the handler end its process", t.returns))
}

// suspectAfter is how often the queue must have got a message back before the message is handled later, by chance up to
// spread.
const suspectAfter, spread = 5, 2 * time.Second

// suspects reports, once, a message that may end its processes, and says when it is due. Messages that are with a
// process when it ends are delivered again together, so each has the count of the guilty one. In an order by chance,
// half of the others are handled before it each time, and leave it.
func (r *run) suspects(t *task) bool {
	if !r.parks() || t.returns <= suspectAfter || !t.since.IsZero() {
		return false
	}
	t.since = time.Now()
	t.due = t.since.Add(rand.N(spread)) //nolint:gosec // jitter is no secret
	return true
}

// parks reports whether a failed message waits on the broker.
func (r *run) parks() bool { return r.Declare != nil && len(r.Declare.Delays) > 0 }

// requeue returns a failed message to the queue after a pause. Every RabbitMQ counts basic.reject as a delivery, so a
// delivery limit ends a poison message.
func (r *run) requeue(t *task, m *consumer.Message, err error) consumer.Result {
	if limit := r.deliveryLimit.Load(); limit != amqpconn.Unlimited && int64(t.returns) >= limit {
		r.logLimit(m, err, limit)
		r.answer(m, t.Reject(true))
		return consumer.Dead
	}
	delay := r.retry.Delay(failuresBefore(t, m))
	r.log().Again(m, err, delay)
	// A stop does not wait for the pause: the message goes back now.
	_ = backoff.Sleep(r.stopping, delay)
	r.answer(m, t.Reject(true))
	return consumer.Retried
}

// giveBack returns a message whose handling was interrupted. RabbitMQ 4.3 does not count basic.nack as a delivery.
func (r *run) giveBack(t *task, m *consumer.Message, err error) consumer.Result {
	r.log().Again(m, err, 0)
	r.answer(m, t.Nack(false, true))
	return consumer.Retried
}

// keep has a message handled again after a pause without a return to the queue: the message did not fail, and
// RabbitMQ before 4.3 counts each return against the delivery limit.
func (r *run) keep(t *task, m *consumer.Message, err error) consumer.Result {
	delay := r.retry.Delay(t.kept)
	r.log().Again(m, err, delay)
	if t.kept == 0 {
		t.since = time.Now()
	}
	t.kept++
	t.due = time.Now().Add(delay)
	return consumer.Retried
}

// park puts a message into the delay queue of its next step.
func (r *run) park(t *task, m *consumer.Message, err error) consumer.Result {
	again := r.again(&t.Delivery, m, err)
	again.Headers[consumer.HeaderRetries] = deadletter.Grown(m.Retries)
	queue := r.Declare.delayQueue(r.Queue, m.Retries)
	if failed := r.poster.post(r.work, "", queue, again); failed != nil {
		return r.keep(t, m, errors.Join(err, failed))
	}
	r.log().Again(m, err, r.Declare.Delays[min(m.Retries, len(r.Declare.Delays)-1)])
	r.answer(m, t.Ack(false))
	return consumer.Retried
}

// deadLetter puts a message among the dead letters, with its cause if Declare names the exchange.
func (r *run) deadLetter(t *task, m *consumer.Message, err error) consumer.Result {
	if r.Declare == nil || r.Declare.DeadLetterExchange == "" {
		r.log().Dead(m, err)
		r.answer(m, t.Reject(false))
		return consumer.Dead
	}
	dead := r.again(&t.Delivery, m, err)
	dead.Headers[consumer.HeaderDeadReason] = adapter.Cause(err.Error(), adapter.MaxCause)
	key := r.Declare.deadLetterKey(r.Queue)
	ctx, cancel := adapter.Decided(r.work)
	defer cancel()
	if failed := r.poster.post(ctx, r.Declare.DeadLetterExchange, key, dead); failed != nil {
		return r.keep(t, m, errors.Join(err, failed))
	}
	r.log().Dead(m, err)
	r.answer(m, t.Ack(false))
	return consumer.Dead
}

// again is the next publishing of a delivered message, with its failures in headers.
func (r *run) again(d *amqp.Delivery, m *consumer.Message, err error) amqp.Publishing {
	p := republishing(d)
	if m.FirstCause == "" {
		p.Headers[consumer.HeaderFirstCause] = adapter.Cause(err.Error(), adapter.MaxCause)
		p.Headers[consumer.HeaderFirstFailedAt] = time.Now().UTC().Format(time.RFC3339)
	}
	p.Headers[consumer.HeaderRetries] = int64(m.Retries)
	p.Headers[consumer.HeaderQueue] = r.Queue
	p.Headers[consumer.HeaderExchange], p.Headers[consumer.HeaderRoutingKey] = m.Exchange, m.RoutingKey
	return p
}

// republishing is the next publishing of a delivered message, without the properties of a single publishing: an
// expiry, a user, further recipients, and the broker's own notes.
func republishing(d *amqp.Delivery) amqp.Publishing {
	headers := amqp.Table{}
	maps.Copy(headers, d.Headers)
	maps.DeleteFunc(headers, func(name string, _ any) bool {
		return name == "CC" || name == "BCC" || name == "x-death" || name == headerDeliveryCount ||
			name == headerAcquiredCount ||
			strings.HasPrefix(name, "x-first-death-") || strings.HasPrefix(name, "x-last-death-")
	})
	return amqp.Publishing{
		Headers: headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: amqp.Persistent,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, MessageId: d.MessageId,
		Timestamp: d.Timestamp, Type: d.Type, AppId: d.AppId, Body: d.Body,
	}
}

// failuresBefore is a guess where the queue does not count.
func failuresBefore(t *task, m *consumer.Message) int {
	if m.Deliveries == 0 && m.Redelivered {
		return 1
	}
	return t.returns
}

// logLimit logs a message that RabbitMQ does not redeliver. A policy may have set a lower limit, which a client
// cannot see.
func (r *run) logLimit(m *consumer.Message, err error, limit int64) {
	const consequence = "the message's delivery limit is reached: RabbitMQ moves it to the queue's dead-letter " +
		"exchange, or drops it where there is none"
	r.log().Failure(slog.LevelWarn, consequence, m, err, slog.Int64("returns_allowed", limit))
}

// answer logs a failed answer to the broker: the connection is lost, and the message will be redelivered.
func (r *run) answer(m *consumer.Message, err error) {
	if err != nil {
		r.log().Line(slog.LevelWarn, "broker not reached: the outcome of a message is not settled; "+
			"the message will be redelivered", m, err)
	}
}

func (r *run) log() adapter.Log {
	return adapter.Log{Context: r.work, Logger: r.Logger, Name: func(m *consumer.Message) []slog.Attr {
		return adapter.Name(m, slog.Bool("redelivered", m.Redelivered))
	}}
}
