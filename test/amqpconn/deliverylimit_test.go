package amqpconn_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/test/servers"
)

// quorum are the arguments of a quorum queue, with further ones.
func quorum(further amqp.Table) amqp.Table {
	further[amqp.QueueTypeArg] = amqp.QueueTypeQuorum
	return further
}

func TestDeliveryLimitOfExistingQueues(t *testing.T) {
	t.Parallel()
	conn, err := amqpconn.Dial(t.Context(), servers.RabbitMQ(t).URL, config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseWithin(patience)
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	// What RabbitMQ 4 changed: a limit by default, and -1 for none.
	byDefault, minusOne := amqpconn.Limit{Returns: amqpconn.Unlimited}, amqpconn.Limit{Returns: 0, Fixed: true}
	if conn.LimitsByDefault() {
		byDefault, minusOne = amqpconn.Limit{Returns: amqpconn.DefaultLimit}, amqpconn.Limit{Returns: amqpconn.Unlimited}
	}
	for name, c := range map[string]struct {
		arguments amqp.Table
		want      amqpconn.Limit
	}{
		"without arguments":           {quorum(amqp.Table{}), byDefault},
		"as declared without a limit": {conn.UnlimitedArguments(), amqpconn.Limit{Returns: amqpconn.Unlimited}},
		"minus one":                   {quorum(amqp.Table{"x-delivery-limit": int64(-1)}), minusOne},
		"five": {
			quorum(amqp.Table{"x-delivery-limit": int32(5)}),
			amqpconn.Limit{Returns: 5, Fixed: true},
		},
		"nought": {
			quorum(amqp.Table{"x-delivery-limit": int64(0)}),
			amqpconn.Limit{Returns: 0, Fixed: true},
		},
		"five among others": {quorum(amqp.Table{
			"x-delivery-limit": int64(5), "x-message-ttl": int64(86400000), "x-max-length": int64(100),
			"x-overflow":             "reject-publish",
			"x-dead-letter-exchange": "graves", "x-dead-letter-routing-key": "it's 7", "x-expires": int64(86400000),
		}), amqpconn.Limit{Returns: 5, Fixed: true}},
		"others only": {quorum(amqp.Table{"x-max-length": int64(100)}), byDefault},
		"classic":     {amqp.Table{}, amqpconn.Limit{Returns: amqpconn.Unlimited}},
	} {
		if _, err := ch.QueueDeclare(name, true, false, false, false, c.arguments); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c.want.Possible = name != "classic" // a policy may limit each quorum queue
		if got, err := conn.DeliveryLimit(name); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, c.want)
		}
	}
}

func TestUnlimitedPolicyIsAShellCommand(t *testing.T) {
	t.Parallel()
	const want = `rabbitmqctl set_policy --vhost '/' --apply-to quorum_queues --priority 10 ` +
		`'unlimited-it'\''s.dead' '^it'\''s\.dead$' ` +
		`'{"delivery-limit":-1}'`
	if got := amqpconn.UnlimitedPolicy("/", "it's.dead"); got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
}
