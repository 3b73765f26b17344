package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/amqpconn"
)

// Declare says what to make on the broker before consuming, all of it durable. What exists already with the same
// properties is left as it is; where the properties differ, Run fails with a MismatchError.
type Declare struct {
	// Exchange is the exchange that the queue is bound to, by each of BindingKeys. Empty: nothing is bound.
	Exchange string
	// ExchangeType is topic, direct, fanout or headers. Default: topic.
	ExchangeType string
	// BindingKeys default to one that is "#", everything on a topic exchange.
	BindingKeys []string
	// QueueType is quorum or classic, of all queues that are made. Default: quorum, which counts deliveries.
	QueueType string
	// DeadLetterExchange is the direct exchange to which rejected messages go. Empty: they are dropped.
	DeadLetterExchange string
	// DeadLetterQueue is declared without a delivery limit and bound to DeadLetterExchange. One that exists with another
	// limit is used as it is, with a warning in the log. Default: the queue's name and ".dead".
	DeadLetterQueue string
	// DeliveryLimit is how often a quorum queue delivers a message again before it goes to DeadLetterExchange: after a
	// failure without Delays, or when a process ends that has the message in hand. A stop counts too before RabbitMQ 4.3. 0:
	// the broker's default, which is none before RabbitMQ 4.0 and 20 since; without a DeadLetterExchange the broker drops
	// the message then.
	DeliveryLimit int
	// Delays are the retry steps: a message whose handler failed waits in a queue QUEUE.retry.DELAY of the broker, the
	// first delay after its first failure and so on, and comes back. Nobody's prefetch holds it meanwhile, and it survives
	// restarts. None: it waits in this process, for Config.Retry, without a limit. They need DeadLetterExchange.
	Delays []time.Duration
	// RetryLimit is how often a message is retried by Delays, the last of which repeats, before it is a dead letter.
	// Default: once for each of Delays.
	RetryLimit int
}

func (d *Declare) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("consumer.Config: Declare."+format, args...))
	}
	if d.QueueType != "" && d.QueueType != amqp.QueueTypeQuorum && d.QueueType != amqp.QueueTypeClassic {
		wrong("QueueType is %q; it must be quorum or classic", d.QueueType)
	}
	if d.DeliveryLimit < 0 || d.DeliveryLimit > 0 && d.QueueType == amqp.QueueTypeClassic {
		wrong("DeliveryLimit is %d; it must be positive, and only a quorum queue has one", d.DeliveryLimit)
	}
	if d.DeadLetterExchange == "" && (d.DeliveryLimit > 0 || len(d.Delays) > 0) {
		wrong("DeadLetterExchange is missing; with DeliveryLimit or Delays messages would be dropped")
	}
	for _, delay := range d.Delays {
		if delay < time.Millisecond || delay%time.Millisecond != 0 {
			wrong("Delays holds %v; a delay is one or more whole milliseconds", delay)
		}
	}
	if d.RetryLimit < 0 || d.RetryLimit > 0 && len(d.Delays) == 0 {
		wrong("RetryLimit is %d; it must be positive, and counts the retries by Delays", d.RetryLimit)
	}
	return errors.Join(errs...)
}

// retryLimit is how often Delays retry a message.
func (d *Declare) retryLimit() int {
	if d.RetryLimit > 0 {
		return d.RetryLimit
	}
	return len(d.Delays)
}

// delayQueue is where a message waits that was retried so often before.
func (d *Declare) delayQueue(queue string, retries int) string {
	return delayQueue(queue, d.Delays[min(retries, len(d.Delays)-1)])
}

func delayQueue(queue string, delay time.Duration) string { return queue + ".retry." + delay.String() }

// on makes it all, for that queue.
func (d *Declare) on(conn *amqpconn.Conn, ch *amqp.Channel, queue string, logger *slog.Logger) error {
	args := amqp.Table{}
	if d.DeadLetterExchange != "" {
		if err := d.deadLetters(conn, ch, queue, logger); err != nil {
			return err
		}
		args["x-dead-letter-exchange"] = d.DeadLetterExchange
		args["x-dead-letter-routing-key"] = queue
	}
	if d.DeliveryLimit > 0 {
		args["x-delivery-limit"] = int64(d.DeliveryLimit)
	}
	if err := makeQueue(ch, queue, d.queueType(), args); err != nil {
		return err
	}
	for _, delay := range d.Delays {
		if err := waitingRoom(ch, delayQueue(queue, delay), d.queueType(), queue, delay); err != nil {
			return err
		}
	}
	return d.bindings(ch, queue)
}

func (d *Declare) queueType() string { return or(d.QueueType, amqp.QueueTypeQuorum) }

// waitingRoom makes a queue whose messages go to another after a delay. By the default exchange they come to that queue
// alone, whoever else gets what its exchange takes.
func waitingRoom(ch *amqp.Channel, name, kind, then string, delay time.Duration) error {
	args := amqp.Table{
		"x-message-ttl": delay.Milliseconds(), "x-dead-letter-exchange": "", "x-dead-letter-routing-key": then,
	}
	if kind == amqp.QueueTypeQuorum {
		// A message that has waited is forgotten here once it is there.
		args["x-dead-letter-strategy"], args["x-overflow"] = "at-least-once", "reject-publish"
	}
	return makeQueue(ch, name, kind, args)
}

func makeQueue(ch *amqp.Channel, name, kind string, args amqp.Table) error {
	args[amqp.QueueTypeArg] = kind
	if _, err := ch.QueueDeclare(name, true, false, false, false, args); err != nil {
		return fmt.Errorf("declare queue %q: %w", name, mismatch(err))
	}
	return nil
}

func (d *Declare) bindings(ch *amqp.Channel, queue string) error {
	if d.Exchange == "" {
		return nil
	}
	if err := exchange(ch, d.Exchange, or(d.ExchangeType, "topic")); err != nil {
		return err
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

// deadLetters declares exchange and queue for dead letters. The queue is bound by the consumed queue's name, so that several
// queues may share the exchange.
func (d *Declare) deadLetters(conn *amqpconn.Conn, ch *amqp.Channel, queue string, logger *slog.Logger) error {
	dead := d.deadLetterQueue(queue)
	if err := exchange(ch, d.DeadLetterExchange, "direct"); err != nil {
		return err
	}
	if err := makeDeadLetterQueue(conn, dead, d.queueType(), logger); err != nil {
		return err
	}
	if err := ch.QueueBind(dead, queue, d.DeadLetterExchange, false, nil); err != nil {
		return fmt.Errorf("bind dead-letter queue %q: %w", dead, err)
	}
	return nil
}

// makeDeadLetterQueue declares a queue without a delivery limit: each look at a dead letter may count as a delivery. A queue
// that exists with another limit is used as it is, because no client can change the limit; an earlier version declared such
// queues, and so does a client of RabbitMQ 3 whose broker is upgraded later.
func makeDeadLetterQueue(conn *amqpconn.Conn, name, kind string, logger *slog.Logger) error {
	variants := []amqp.Table{{}}
	if kind == amqp.QueueTypeQuorum && conn.LimitsByDefault() {
		variants = []amqp.Table{{amqpconn.LimitArgument: int64(amqpconn.Unlimited)}, {}}
	}
	var existing *MismatchError
	for i, args := range variants {
		err := declareAlone(conn, name, kind, args)
		if !errors.As(err, &existing) || existing.Argument != amqpconn.LimitArgument {
			if err == nil && i > 0 {
				logger.Warn("dead-letter queue has a delivery limit; RabbitMQ may drop letters that come back too often; set the "+
					"policy",
					slog.String("dead_letter_queue", name), slog.String("policy", amqpconn.UnlimitedPolicy(conn.Config.Vhost, name)))
			}
			return err
		}
	}
	logger.Warn("dead-letter queue was declared with a delivery limit, which no policy lifts; "+
		"RabbitMQ may drop letters that come back too often; empty and delete the queue, and it is declared without",
		slog.String("dead_letter_queue", name), slog.String("delivery_limit", existing.Existing))
	return nil
}

// declareAlone declares a queue on a channel of its own: the broker closes the channel where the queue exists otherwise.
func declareAlone(conn *amqpconn.Conn, name, kind string, args amqp.Table) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	if err := makeQueue(ch, name, kind, args); err != nil {
		return err
	}
	return ch.Close()
}

func (d *Declare) deadLetterQueue(queue string) string { return or(d.DeadLetterQueue, queue+".dead") }

func exchange(ch *amqp.Channel, name, kind string) error {
	if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare exchange %q: %w", name, mismatch(err))
	}
	return nil
}

// MismatchError says that something exists on the broker with other properties than Declare gives it. Nothing was
// changed; delete it, or describe what is there.
type MismatchError struct {
	// Kind is "queue" or "exchange", and Name which one.
	Kind, Name string
	// Argument is what differs, such as type, durable or x-queue-type: the first one that the broker found.
	Argument string
	// Declared and Existing are its values, as the broker words them.
	Declared, Existing string
	cause              error
}

// Error names the argument with both values.
func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s %q exists with another %s: declared %s, existing %s",
		e.Kind, e.Name, e.Argument, e.Declared, e.Existing)
}

// Unwrap gives the broker's own error.
func (e *MismatchError) Unwrap() error { return e.cause }

var inequivalent = regexp.MustCompile(`inequivalent arg '(.+?)' for (\w+) '(.+)' in vhost '.*': received (.+) but current is (.+)$`)

// mismatch reads a broker's error that says what differs; others it leaves as they are.
func mismatch(err error) error {
	var refused *amqp.Error
	if !errors.As(err, &refused) {
		return err
	}
	found := inequivalent.FindStringSubmatch(refused.Reason)
	if found == nil {
		return err
	}
	return &MismatchError{
		Kind: found[2], Name: found[3], Argument: found[1], Declared: found[4], Existing: found[5], cause: err,
	}
}

func or(given, otherwise string) string {
	if given == "" {
		return otherwise
	}
	return given
}
