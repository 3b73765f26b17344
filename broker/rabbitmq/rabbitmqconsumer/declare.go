package rabbitmqconsumer

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
)

// Declare lists the durable queues, exchanges and bindings to create before consuming. Existing ones with the same
// properties are kept; for other properties Run fails with a MismatchError.
type Declare struct {
	// Exchange is the exchange to bind the queue to, by each of BindingKeys. Empty: no binding.
	Exchange string
	// ExchangeType is topic, direct, fanout or headers. Default: topic.
	ExchangeType string
	// BindingKeys default to "#", every message of a topic exchange.
	BindingKeys []string
	// QueueType is quorum or classic, for all declared queues. Default: quorum, which counts deliveries.
	QueueType string
	// DeadLetterExchange is the exchange to which rejected messages go: a direct exchange of their own, or Exchange
	// itself, which then must be of type topic or direct. Empty: they are dropped.
	DeadLetterExchange string
	// DeadLetterKey is the routing key of dead letters. Queues with the same DeadLetterExchange, DeadLetterKey and
	// DeadLetterQueue share one dead-letter queue. DeadLetterKey is required where DeadLetterExchange is Exchange, and no
	// entry of BindingKeys may match it: dead letters would come back. Default: the consumed queue's name.
	DeadLetterKey string
	// DeadLetterQueue is declared without a delivery limit and bound to DeadLetterExchange. An existing queue with
	// another limit is used, with a warning in the log. Default: the queue's name and ".dead".
	DeadLetterQueue string
	// DeliveryLimit is how often a quorum queue redelivers a message before the message goes to DeadLetterExchange:
	// after a failure without Delays, or when a process ends during the handling of the message. Before RabbitMQ 4.3 a
	// stop counts too. 0: the broker's default, which is none before RabbitMQ 4.0 and 20 since. Without a
	// DeadLetterExchange the broker drops the message at the limit.
	DeliveryLimit int
	// Delays are the retry steps: a failed message waits in a queue QUEUE.retry.DELAY of the broker, the first delay
	// after its first failure and so on, and then returns to the queue. A waiting message takes up no prefetch and
	// survives restarts. Delays require DeadLetterExchange. None: the message waits in this process, for Config.Retry,
	// without a limit.
	Delays []time.Duration
	// RetryLimit is how often a message is retried by Delays, whose last entry repeats, before it is a dead letter.
	// Default: once for each of Delays.
	RetryLimit int
	// Hold declares a queue in which messages wait before they reach the consumed queue. Nil: none.
	Hold *Hold
}

// Hold is a queue in which messages wait for a fixed time: an order's time-out, a reminder. Publishers send them to
// Declare.Exchange by BindingKey, so that an outbox or the coordinator can send them too. After Delay the broker
// publishes them to the same exchange by ReleaseKey. They survive restarts of the broker.
type Hold struct {
	// Queue is the name of the queue, and BindingKey the key by which messages get into the queue.
	Queue, BindingKey string
	// Delay is how long messages wait, in whole milliseconds.
	Delay time.Duration
	// ReleaseKey must match an entry of Declare.BindingKeys.
	ReleaseKey string
}

func (d *Declare) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("rabbitmqconsumer.Config: Declare."+format, args...))
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
	d.checkSharedExchange(wrong)
	d.checkHold(wrong)
	return errors.Join(errs...)
}

// checkSharedExchange refuses dead letters that would come back through the exchange of the events.
func (d *Declare) checkSharedExchange(wrong func(format string, args ...any)) {
	switch {
	case d.DeadLetterKey != "" && d.DeadLetterExchange == "":
		wrong("DeadLetterKey is %q without a DeadLetterExchange", d.DeadLetterKey)
	case d.DeadLetterExchange == "" || d.DeadLetterExchange != d.Exchange:
	case d.DeadLetterKey == "":
		wrong("DeadLetterKey is missing; with DeadLetterExchange as Exchange only a key tells dead letters from events")
	case !d.routesByKey():
		wrong("ExchangeType is %q; an exchange of events and dead letters must route by key: topic or direct", d.ExchangeType)
	case d.receives(d.DeadLetterKey):
		wrong("BindingKeys %q match DeadLetterKey %q; dead letters would come back to the queue",
			d.bindingKeys(), d.DeadLetterKey)
	}
}

func (d *Declare) checkHold(wrong func(format string, args ...any)) {
	h := d.Hold
	if h == nil {
		return
	}
	if d.Exchange == "" || h.Queue == "" || h.BindingKey == "" {
		wrong("Hold needs Exchange, Hold.Queue and Hold.BindingKey")
		return
	}
	if h.Delay < time.Millisecond || h.Delay%time.Millisecond != 0 {
		wrong("Hold.Delay is %v; a delay is one or more whole milliseconds", h.Delay)
	}
	switch {
	case !d.routesByKey():
		wrong("ExchangeType is %q; with Hold an exchange must route by key: topic or direct", d.ExchangeType)
	case d.receives(h.BindingKey):
		wrong("BindingKeys %q match Hold.BindingKey %q; messages would arrive without the delay",
			d.bindingKeys(), h.BindingKey)
	case !d.receives(h.ReleaseKey):
		wrong("Hold.ReleaseKey %q matches none of BindingKeys %q; messages would never arrive", h.ReleaseKey, d.bindingKeys())
	case d.matches(h.BindingKey, h.ReleaseKey):
		wrong("Hold.ReleaseKey %q matches Hold.BindingKey %q; messages would wait for ever", h.ReleaseKey, h.BindingKey)
	case d.DeadLetterExchange == d.Exchange && d.matches(h.BindingKey, d.DeadLetterKey):
		wrong("DeadLetterKey %q matches Hold.BindingKey %q; dead letters would come back after the delay",
			d.DeadLetterKey, h.BindingKey)
	}
}

// routesByKey reports whether the exchange's type compares the routing key with binding keys.
func (d *Declare) routesByKey() bool { return d.exchangeType() == topic || d.exchangeType() == direct }

// receives reports whether the consumed queue gets messages with this routing key.
func (d *Declare) receives(key string) bool {
	return slices.ContainsFunc(d.bindingKeys(), func(binding string) bool { return d.matches(binding, key) })
}

// matches reports whether the exchange routes a key to a binding.
func (d *Declare) matches(binding, key string) bool {
	if d.exchangeType() == direct {
		return binding == key
	}
	return topicMatches(strings.Split(binding, "."), strings.Split(key, "."))
}

// topicMatches compares by words: * stands for one word, # for any number of words.
func topicMatches(binding, key []string) bool {
	if len(binding) == 0 {
		return len(key) == 0
	}
	if binding[0] == "#" {
		return topicMatches(binding[1:], key) || len(key) > 0 && topicMatches(binding, key[1:])
	}
	return len(key) > 0 && (binding[0] == "*" || binding[0] == key[0]) && topicMatches(binding[1:], key[1:])
}

// retryLimit is how often Delays retry a message.
func (d *Declare) retryLimit() int {
	if d.RetryLimit > 0 {
		return d.RetryLimit
	}
	return len(d.Delays)
}

// delayQueue is the delay queue for a message after this many retries.
func (d *Declare) delayQueue(queue string, retries int) string {
	return delayQueue(queue, d.Delays[min(retries, len(d.Delays)-1)])
}

func delayQueue(queue string, delay time.Duration) string { return queue + ".retry." + delay.String() }

// apply declares all parts for the queue.
func (d *Declare) apply(conn *amqpconn.Conn, ch *amqp.Channel, queue string, logger *slog.Logger) error {
	args := amqp.Table{}
	if d.DeadLetterExchange != "" {
		if err := d.deadLetters(conn, ch, queue, logger); err != nil {
			return err
		}
		args["x-dead-letter-exchange"] = d.DeadLetterExchange
		args["x-dead-letter-routing-key"] = d.deadLetterKey(queue)
	}
	if d.DeliveryLimit > 0 {
		args["x-delivery-limit"] = int64(d.DeliveryLimit)
	}
	if err := makeQueue(ch, queue, d.queueType(), args); err != nil {
		return err
	}
	for _, delay := range d.Delays {
		if err := declareDelayQueue(ch, delayQueue(queue, delay), d.queueType(), route{"", queue}, delay); err != nil {
			return err
		}
	}
	if err := d.bindings(ch, queue); err != nil {
		return err
	}
	return d.hold(ch)
}

// hold declares the queue of Hold. The consumed queue is bound before, so that no released message is unroutable.
func (d *Declare) hold(ch *amqp.Channel) error {
	h := d.Hold
	if h == nil {
		return nil
	}
	if err := declareDelayQueue(ch, h.Queue, d.queueType(), route{d.Exchange, h.ReleaseKey}, h.Delay); err != nil {
		return err
	}
	return bind(ch, h.Queue, h.BindingKey, d.Exchange)
}

func (d *Declare) queueType() string { return cmp.Or(d.QueueType, amqp.QueueTypeQuorum) }

// route is an exchange and a routing key.
type route struct{ exchange, key string }

// declareDelayQueue declares a queue whose messages go to a route after a delay. Through the default exchange the
// messages reach one queue alone.
func declareDelayQueue(ch *amqp.Channel, name, kind string, to route, delay time.Duration) error {
	args := amqp.Table{
		"x-message-ttl": delay.Milliseconds(), "x-dead-letter-exchange": to.exchange, "x-dead-letter-routing-key": to.key,
	}
	if kind == amqp.QueueTypeQuorum {
		// A message leaves the delay queue only when the target has the message.
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
	if err := exchange(ch, d.Exchange, d.exchangeType()); err != nil {
		return err
	}
	for _, key := range d.bindingKeys() {
		if err := bind(ch, queue, key, d.Exchange); err != nil {
			return err
		}
	}
	return nil
}

func bind(ch *amqp.Channel, queue, key, exchange string) error {
	if err := ch.QueueBind(queue, key, exchange, false, nil); err != nil {
		return fmt.Errorf("bind queue %q to exchange %q by %q: %w", queue, exchange, key, err)
	}
	return nil
}

func (d *Declare) bindingKeys() []string {
	if len(d.BindingKeys) == 0 {
		return []string{"#"}
	}
	return d.BindingKeys
}

// The types of exchanges that route by key.
const (
	topic  = amqp.ExchangeTopic
	direct = amqp.ExchangeDirect
)

func (d *Declare) exchangeType() string { return cmp.Or(d.ExchangeType, topic) }

// deadLetters declares exchange and queue for dead letters. The queue is bound by the consumed queue's name or by
// DeadLetterKey, so that several queues may share the exchange.
func (d *Declare) deadLetters(conn *amqpconn.Conn, ch *amqp.Channel, queue string, logger *slog.Logger) error {
	dead := d.deadLetterQueue(queue)
	kind := direct
	if d.DeadLetterExchange == d.Exchange {
		kind = d.exchangeType()
	}
	if err := exchange(ch, d.DeadLetterExchange, kind); err != nil {
		return err
	}
	if err := makeDeadLetterQueue(conn, dead, d.queueType(), logger); err != nil {
		return err
	}
	return bind(ch, dead, d.deadLetterKey(queue), d.DeadLetterExchange)
}

// makeDeadLetterQueue declares a queue without a delivery limit: each look at a dead letter may count as a delivery.
// An existing queue with another limit is used, because no client can change the limit. An operator may have declared
// such a queue, and a queue from RabbitMQ 3 has the default limit after an upgrade to RabbitMQ 4.
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
				logger.Warn("dead-letter queue has a delivery limit; RabbitMQ may drop letters that come back too often; "+
					"set the policy", slog.String("dead_letter_queue", name),
					slog.String("policy", amqpconn.UnlimitedPolicy(conn.Config.Vhost, name)))
			}
			return err
		}
	}
	logger.Warn("dead-letter queue was declared with a delivery limit, which no policy lifts; "+
		"RabbitMQ may drop letters that come back too often; empty and delete the queue, and it is declared without",
		slog.String("dead_letter_queue", name), slog.String("delivery_limit", existing.Existing))
	return nil
}

// declareAlone declares a queue on a channel of its own: for a queue with other arguments the broker closes the
// channel.
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

func (d *Declare) deadLetterKey(queue string) string { return cmp.Or(d.DeadLetterKey, queue) }

func (d *Declare) deadLetterQueue(queue string) string {
	return cmp.Or(d.DeadLetterQueue, queue+".dead")
}

func exchange(ch *amqp.Channel, name, kind string) error {
	if err := ch.ExchangeDeclare(name, kind, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare exchange %q: %w", name, mismatch(err))
	}
	return nil
}

// MismatchError is the error for an existing queue or exchange with other properties than in Declare. The broker's
// state is unchanged; delete the existing queue or exchange, or change Declare.
type MismatchError struct {
	// Kind is "queue" or "exchange", and Name its name.
	Kind, Name string
	// Argument is the first argument that differs for the broker, such as type, durable or x-queue-type.
	Argument string
	// Declared and Existing are its values, in the broker's words.
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

var inequivalent = regexp.MustCompile(
	`inequivalent arg '(.+?)' for (\w+) '(.+)' in vhost '.*': received (.+) but current is (.+)$`)

// mismatch turns the broker's error about differing arguments into a MismatchError; other errors stay unchanged.
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
