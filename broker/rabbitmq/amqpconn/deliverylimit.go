package amqpconn

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/versions"
)

const (
	// Unlimited is the delivery limit of a queue that takes messages back any number of times.
	Unlimited = -1
	// DefaultLimit is the delivery limit of a quorum queue that was declared without a limit, since RabbitMQ 4.0.
	DefaultLimit = 20
	// LimitArgument is the queue argument that sets the delivery limit.
	LimitArgument = "x-delivery-limit"
)

// limitsSince is the first version whose quorum queues have a limit by default, and take Unlimited as an argument. An
// older broker takes the argument too, but then drops a message at its first return.
var limitsSince = versions.Version{4}

// nackUncountedSince is the first version that does not count a basic.nack as a delivery.
var nackUncountedSince = versions.Version{4, 3}

// mostArguments is how many of a queue's arguments are learned.
const mostArguments = 16

// LimitsByDefault reports whether the broker gives a quorum queue without an argument a delivery limit. A broker
// without a version counts as an old one.
func (c *Conn) LimitsByDefault() bool {
	text, _ := c.Properties["version"].(string)
	version, known := versions.Parse(text)
	return known && !version.Before(limitsSince)
}

// CountsNacks reports whether the broker counts a basic.nack against the delivery limit of a quorum queue. A broker
// without a version counts as an old one.
func (c *Conn) CountsNacks() bool {
	text, _ := c.Properties["version"].(string)
	version, known := versions.Parse(text)
	return !known || version.Before(nackUncountedSince)
}

// UnlimitedArguments are the arguments of a quorum queue without a delivery limit.
func (c *Conn) UnlimitedArguments() amqp.Table {
	arguments := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}
	if c.LimitsByDefault() {
		arguments[LimitArgument] = int64(Unlimited)
	}
	return arguments
}

// Limit is the delivery limit of a queue.
type Limit struct {
	// Returns is how often the queue takes a message back before dropping the message, or Unlimited.
	Returns int
	// Fixed is set if the queue was declared with the limit: no policy lifts such a limit.
	Fixed bool
	// Possible is set if a policy may set an invisible limit: the queue is a quorum queue, or of unknown type.
	Possible bool
}

// DeliveryLimit finds the delivery limit of a durable queue. The queue must exist; otherwise DeliveryLimit would
// create the queue. A client learns the arguments of a queue only by declaring the queue again, from the broker's
// refusal. Policies are invisible over AMQP; the result is the limit without policies. If the user may not declare
// the queue, DeliveryLimit assumes a queue without arguments.
func (c *Conn) DeliveryLimit(queue string) (Limit, error) {
	arguments := c.UnlimitedArguments()
	for range mostArguments {
		err := c.declare(queue, arguments)
		var refused *amqp.Error
		switch {
		case err == nil:
			return c.limitBy(arguments), nil
		case errors.As(err, &refused) && refused.Code == amqp.AccessRefused:
			return c.limitBy(nil), nil
		case !errors.As(err, &refused) || refused.Code != amqp.PreconditionFailed:
			return Limit{}, err
		}
		name, existing, ok := Mismatch(refused)
		switch {
		case !ok:
			return c.limitBy(nil), nil
		case !strings.HasPrefix(name, "x-") || name == amqp.QueueTypeArg:
			return Limit{Returns: Unlimited}, nil // only quorum queues have a limit, and quorum queues are durable
		}
		if value := argument(existing); value == nil {
			delete(arguments, name)
		} else {
			arguments[name] = value
		}
	}
	return c.limitBy(nil), nil
}

// declare declares a queue on a channel of its own, which a refusal of the broker closes.
func (c *Conn) declare(queue string, arguments amqp.Table) error {
	ch, err := c.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	if _, err = ch.QueueDeclare(queue, true, false, false, false, arguments); err != nil {
		return fmt.Errorf("look at the arguments of queue %q: %w", queue, err)
	}
	return ch.Close()
}

// limitBy is the limit of a quorum queue with these arguments.
func (c *Conn) limitBy(arguments amqp.Table) Limit {
	limit, fixed := arguments[LimitArgument].(int64)
	switch {
	case !fixed && c.LimitsByDefault():
		return Limit{Returns: DefaultLimit, Possible: true}
	case !fixed || limit < 0 && c.LimitsByDefault():
		return Limit{Returns: Unlimited, Possible: true}
	}
	return Limit{Returns: int(max(limit, 0)), Fixed: true, Possible: true}
}

var inequivalent = regexp.MustCompile(
	`inequivalent arg '(.+?)' for \w+ '.+' in vhost '.*': received .+ but current is (.+)$`)

// Mismatch returns the argument that differs from the existing queue or exchange, and its existing value, from the
// broker's error.
func Mismatch(refused *amqp.Error) (name, existing string, ok bool) {
	if found := inequivalent.FindStringSubmatch(refused.Reason); found != nil {
		return found[1], found[2], true
	}
	return "", "", false
}

var valueText = regexp.MustCompile(`^(?:the value )?'(.*)'(?: of type '(\w+)')?$`)

// argument parses a value in the broker's error text; nil means none.
func argument(text string) any {
	found := valueText.FindStringSubmatch(text)
	if found == nil {
		return nil
	}
	if n, err := strconv.ParseInt(found[1], 10, 64); err == nil && found[2] != "longstr" {
		return n
	}
	if found[2] == "bool" || found[2] == "boolean" {
		return found[1] == "true"
	}
	return found[1]
}

// UnlimitedPolicy is the command that removes the delivery limit of an existing quorum queue that was declared
// without an argument.
func UnlimitedPolicy(vhost, queue string) string {
	return fmt.Sprintf("rabbitmqctl set_policy --vhost %s --apply-to quorum_queues --priority 10 "+
		"%s %s '{\"delivery-limit\":-1}'",
		quoted(vhost), quoted("unlimited-"+queue), quoted("^"+regexp.QuoteMeta(queue)+"$"))
}

// quoted quotes a text for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
