package amqpbroker

import (
	"fmt"
	"time"
)

// settings are the meaning of a queue's arguments.
type settings struct {
	// ttl is how long messages live; negative means without end.
	ttl time.Duration

	deadExchange, deadKey       string
	hasDeadExchange, hasDeadKey bool

	quorum bool
	// deliveryLimit is how often a message may fail; negative means always.
	deliveryLimit int
}

// comparedArguments are the arguments that must be the same when a queue is declared again.
var comparedArguments = []string{
	"x-queue-type", "x-message-ttl", "x-expires", "x-max-length", "x-max-length-bytes", "x-overflow",
	"x-dead-letter-exchange", "x-dead-letter-routing-key", "x-delivery-limit", "x-max-priority", "x-queue-mode",
	"x-single-active-consumer",
}

// parseSettings reads a queue's arguments. Unknown arguments mean nothing, as with RabbitMQ.
func parseSettings(arguments table) (settings, error) {
	r := argumentReader{arguments: arguments}
	s := settings{
		ttl:    r.duration("x-message-ttl"),
		quorum: r.isQuorum(),
	}
	s.deliveryLimit = r.deliveryLimit(s.quorum)
	s.deadExchange, s.hasDeadExchange = r.text("x-dead-letter-exchange")
	s.deadKey, s.hasDeadKey = r.text("x-dead-letter-routing-key")
	if s.hasDeadKey && !s.hasDeadExchange {
		r.fail("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined")
	}
	return s, r.err
}

// The types of queues.
const (
	typeClassic = "classic"
	typeQuorum  = "quorum"
)

// argumentReader reads arguments and keeps the first error.
type argumentReader struct {
	arguments table
	err       error
}

func (r *argumentReader) fail(name, why string) {
	if r.err == nil {
		r.err = fmt.Errorf("invalid arg '%s': %s", name, why)
	}
}

// number returns a number that is not negative, or -1 without the argument.
func (r *argumentReader) number(name string) int64 {
	v := r.arguments.get(name)
	if v == nil {
		return -1
	}
	n, ok := v.integer()
	switch {
	case !ok:
		r.fail(name, "must be a number")
	case n < 0:
		r.fail(name, fmt.Sprintf("{value_negative,%d}", n))
	}
	return n
}

// defaultDeliveryLimit is the limit of quorum queues since RabbitMQ 4.0.
const defaultDeliveryLimit = 20

// deliveryLimit gives the delivery limit. As since RabbitMQ 4.0, a negative limit is none.
func (r *argumentReader) deliveryLimit(quorum bool) int {
	v := r.arguments.get("x-delivery-limit")
	if n, ok := v.integer(); ok && n < 0 {
		return -1
	}
	if v == nil && quorum {
		return defaultDeliveryLimit
	}
	return int(r.number("x-delivery-limit"))
}

// duration returns a number of milliseconds as a duration, or a negative duration without the argument.
func (r *argumentReader) duration(name string) time.Duration {
	n := r.number(name)
	if n < 0 {
		return noTTL
	}
	return time.Duration(n) * time.Millisecond
}

func (r *argumentReader) text(name string) (s string, ok bool) {
	v := r.arguments.get(name)
	if v == nil {
		return "", false
	}
	s, ok = r.arguments.stringOf(name)
	if !ok {
		r.fail(name, "must be a string")
	}
	return s, ok
}

// isQuorum reads the type of the queue.
func (r *argumentReader) isQuorum() bool {
	kind, given := r.text("x-queue-type")
	if given && kind != typeClassic && kind != typeQuorum {
		r.fail("x-queue-type", fmt.Sprintf("unknown value '%s'", kind))
	}
	return kind == typeQuorum
}
