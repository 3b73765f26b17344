package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
)

// LimitedQueue is a queue with a delivery limit: the queue drops a message that is redelivered too often.
type LimitedQueue struct {
	Name string
	// Limit is how often a message may be redelivered.
	Limit int
	// Policy is the command that lifts the limit; empty if the queue was declared with the limit, which no policy lifts.
	Policy string
}

// LimitedQueues finds the queues with a delivery limit and the queues that do not exist, and takes no message. AMQP
// does not show a limit that only a policy sets or lifts.
func LimitedQueues(
	ctx context.Context, config Config, queues ...string,
) (limited []LimitedQueue, missing []string, err error) {
	c, _, err := reach(ctx, config)
	if err != nil {
		return nil, nil, err
	}
	defer c.close()
	defer context.AfterFunc(ctx, c.conn.HangUp)()
	for _, name := range queues {
		limit, err := c.deliveryLimit(name)
		switch {
		case errors.Is(err, errNoQueue):
			missing = append(missing, name)
			continue
		case err != nil:
			return nil, nil, err
		case limit.Returns == amqpconn.Unlimited:
			continue
		}
		found := LimitedQueue{Name: name, Limit: limit.Returns}
		if !limit.Fixed {
			found.Policy = amqpconn.UnlimitedPolicy(c.conn.Config.Vhost, name)
		}
		limited = append(limited, found)
	}
	return limited, missing, nil
}

// errNoQueue says that a queue does not exist.
var errNoQueue = errors.New("no such queue")

// deliveryLimit finds the delivery limit of a queue. The error is errNoQueue where the queue does not exist.
func (c *connection) deliveryLimit(queue string) (amqpconn.Limit, error) {
	none := amqpconn.Limit{Returns: amqpconn.Unlimited}
	channel, err := c.channel()
	if err != nil {
		return none, err
	}
	if _, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
		var refused *amqp.Error
		if errors.As(err, &refused) && refused.Code == amqp.NotFound {
			return none, errNoQueue
		}
		return none, fmt.Errorf("look at the queue %s: %w", queue, err)
	}
	if err := channel.Close(); err != nil {
		return none, err
	}
	return c.conn.DeliveryLimit(queue)
}
