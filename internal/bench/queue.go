package bench

import (
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// queue is the run's own queue, and whoever empties it.
type queue struct {
	name       string
	connection *amqp.Connection
	channel    *amqp.Channel
	consuming  sync.WaitGroup
}

// unusedFor is when the broker removes a queue that nobody consumes from: of a run that was killed.
const unusedFor = time.Hour

func openQueue(url, name string, classic bool) (*queue, error) {
	connection, err := amqp.Dial(url)
	if err != nil {
		return nil, fmt.Errorf("connect to the broker: %w", err)
	}
	q := &queue{name: name, connection: connection}
	if q.channel, err = connection.Channel(); err == nil {
		kind := amqp.QueueTypeQuorum
		if classic {
			kind = amqp.QueueTypeClassic
		}
		_, err = q.channel.QueueDeclare(name, true, false, false, false, amqp.Table{
			amqp.QueueTypeArg: kind, amqp.QueueTTLArg: unusedFor.Milliseconds(),
		})
	}
	if err != nil {
		_ = connection.Close()
		return nil, fmt.Errorf("make the queue %s: %w", name, err)
	}
	return q, nil
}

// consume hands each delivery on until the queue is removed.
func (q *queue) consume(delivered func(id string, at time.Time)) error {
	deliveries, err := q.channel.Consume(q.name, "", true, true, false, false, nil)
	if err != nil {
		return fmt.Errorf("consume from the queue %s: %w", q.name, err)
	}
	q.consuming.Go(func() {
		for d := range deliveries {
			delivered(d.MessageId, time.Now())
		}
	})
	return nil
}

// remove removes the queue and ends the connection.
func (q *queue) remove() error {
	_, err := q.channel.QueueDelete(q.name, false, false, false)
	_ = q.connection.Close() // the queue is what counts
	q.consuming.Wait()
	if err != nil {
		return fmt.Errorf("the queue %s could not be removed; it goes by itself when it was not used for %s: %w", q.name,
			unusedFor, err)
	}
	return nil
}
