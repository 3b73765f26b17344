package rabbitmq

import (
	"context"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/amqpconn"
)

// LimitedQueue is a queue that drops a message which comes back too often.
type LimitedQueue struct {
	Name string
	// Limit is how often a message may come back.
	Limit int
	// Policy is the command that lifts the limit; empty where the queue was declared with the limit, which no policy lifts.
	Policy string
}

// LimitedQueues finds those of some queues that have a delivery limit, without any message being taken. Queues that do not exist
// are left out. A limit that only a policy sets or lifts cannot be seen over AMQP.
func LimitedQueues(ctx context.Context, config Config, queues ...string) (limited []LimitedQueue, err error) {
	k, _, err := reach(ctx, config)
	if err != nil {
		return nil, err
	}
	defer k.close()
	defer context.AfterFunc(ctx, k.connection.HangUp)()
	for _, name := range queues {
		limit, err := k.deliveryLimit(name)
		switch {
		case err != nil:
			return nil, err
		case limit.Returns == amqpconn.Unlimited:
			continue
		}
		found := LimitedQueue{Name: name, Limit: limit.Returns}
		if !limit.Fixed {
			found.Policy = amqpconn.UnlimitedPolicy(k.connection.Config.Vhost, name)
		}
		limited = append(limited, found)
	}
	return limited, nil
}

// deliveryLimit finds the delivery limit of a queue; one that does not exist has none.
func (k *link) deliveryLimit(queue string) (amqpconn.Limit, error) {
	none := amqpconn.Limit{Returns: amqpconn.Unlimited}
	channel, err := k.channel()
	if err != nil {
		return none, err
	}
	if _, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
		var refused *amqp.Error
		if errors.As(err, &refused) && refused.Code == amqp.NotFound {
			return none, nil
		}
		return none, fmt.Errorf("look at the queue %s: %w", queue, err)
	}
	if err := channel.Close(); err != nil {
		return none, err
	}
	return k.connection.DeliveryLimit(queue)
}
