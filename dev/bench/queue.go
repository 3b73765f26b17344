package bench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// queues are the run's own queues, and their consumer.
type queues struct {
	names      []string
	connection *amqp.Connection
	channel    *amqp.Channel
	consuming  sync.WaitGroup
	// delivered counts the deliveries of each.
	delivered []atomic.Int64
}

// unusedFor is when the broker removes a queue without consumers, such as a queue of a killed run.
const unusedFor = time.Hour

// leaderLocatorArg chooses the cluster node of a queue's leader; balanced is the node with the fewest leaders.
const leaderLocatorArg, leaderBalanced = "x-queue-leader-locator", "balanced"

// openQueues makes so many queues.
func openQueues(url, name string, count int, classic bool) (*queues, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	q := &queues{names: queueNames(name, count), connection: connection, delivered: make([]atomic.Int64, count)}
	if q.channel, err = connection.Channel(); err == nil {
		err = q.declare(classic)
	}
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("make the queue %s: %w", name, err)
	}
	return q, nil
}

// queueNames names the queues of a run; a single queue has the run's own name.
func queueNames(name string, count int) []string {
	if count == 1 {
		return []string{name}
	}
	names := make([]string, count)
	for i := range names {
		names[i] = fmt.Sprintf("%s.%d", name, i)
	}
	return names
}

func (q *queues) declare(classic bool) error {
	args := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.QueueTTLArg: unusedFor.Milliseconds()}
	if classic {
		args[amqp.QueueTypeArg] = amqp.QueueTypeClassic
	}
	if len(q.names) > 1 {
		args[leaderLocatorArg] = leaderBalanced
	}
	for _, name := range q.names {
		if _, err := q.channel.QueueDeclare(name, true, false, false, false, args); err != nil {
			return err
		}
	}
	return nil
}

// consume hands each delivery on until the queues are removed.
func (q *queues) consume(delivered func(id string, at time.Time)) error {
	for i, name := range q.names {
		deliveries, err := q.channel.Consume(name, "", true, true, false, false, nil)
		if err != nil {
			return fmt.Errorf("consume from the queue %s: %w", name, err)
		}
		q.consuming.Go(func() {
			for d := range deliveries {
				q.delivered[i].Add(1)
				delivered(d.MessageId, time.Now())
			}
		})
	}
	return nil
}

// deliveries is the number of deliveries of each queue.
func (q *queues) deliveries() map[string]int64 {
	counts := make(map[string]int64, len(q.names))
	for i, name := range q.names {
		counts[name] = q.delivered[i].Load()
	}
	return counts
}

// remove removes the queues and ends the connection.
func (q *queues) remove() error {
	var err error
	for _, name := range q.names {
		if _, failed := q.channel.QueueDelete(name, false, false, false); failed != nil && err == nil {
			err = fmt.Errorf("the queue %s could not be removed; the broker removes it after %s without use: %w", name,
				unusedFor, failed)
		}
	}
	_ = q.connection.Close() // only the queues matter
	q.consuming.Wait()
	return err
}
