package bare

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/dev/bench/order"
)

const (
	// aloneBatch and aloneWorkers are the size of the batches, and how many are in flight at once.
	aloneBatch, aloneWorkers = 200, 8
)

// Alone measures the parts without the calls, for a while each.
type Alone struct {
	store     *store
	publisher *publisher
	queue     string
	bodies    order.Bodies
	ids       atomic.Uint64
}

// NewAlone connects to Redis and the broker, and makes a queue; name begins the queue's name and all keys.
func NewAlone(config Config, body int, classic bool) (*Alone, error) {
	a := &Alone{queue: config.Prefix + "-alone", bodies: order.New(body)}
	var err error
	if a.store, err = openStore(config.RedisURL, config.Prefix+"-alone"); err != nil {
		return nil, err
	}
	if a.publisher, err = openPublisher(config.AMQPURL); err != nil {
		return nil, errors.Join(err, a.store.client.Close())
	}
	kind := amqp.QueueTypeQuorum
	if classic {
		kind = amqp.QueueTypeClassic
	}
	_, err = a.publisher.channel.QueueDeclare(a.queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: kind})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the queue %s: %w", a.queue, err), a.Close())
	}
	return a, nil
}

// Close removes the queue and all keys.
func (a *Alone) Close() error {
	_, err := a.publisher.channel.QueueDelete(a.queue, false, false, false)
	a.publisher.close()
	return errors.Join(err, a.store.close(context.Background()))
}

// Redis runs message cycles of the bare scripts.
func (a *Alone) Redis(ctx context.Context, duration time.Duration) (Count, error) {
	return a.repeat(ctx, duration, func(ctx context.Context, batch []*message) error {
		return errors.Join(a.store.half(ctx, batch), a.store.sendable(ctx, batch), a.store.done(ctx, batch))
	})
}

// Publishes publishes with confirms.
func (a *Alone) Publishes(ctx context.Context, duration time.Duration) (Count, error) {
	return a.repeat(ctx, duration, func(_ context.Context, batch []*message) error { return a.publisher.publish(batch) })
}

// Chain runs whole message cycles through Redis and the broker.
func (a *Alone) Chain(ctx context.Context, duration time.Duration) (Count, error) {
	return a.repeat(ctx, duration, func(ctx context.Context, batch []*message) error {
		err := errors.Join(a.store.half(ctx, batch), a.store.sendable(ctx, batch))
		if err == nil {
			err = a.publisher.publish(batch)
		}
		return errors.Join(err, a.store.done(ctx, batch))
	})
}

// Count is a number of messages, and the time they took.
type Count struct {
	Messages int64
	Took     time.Duration
}

// repeat does batches from several workers until the time is over, and counts their messages. The queue is empty again
// on return.
func (a *Alone) repeat(
	ctx context.Context, duration time.Duration, do func(context.Context, []*message) error,
) (Count, error) {
	work, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	var workers sync.WaitGroup
	var count atomic.Int64
	failures := make(chan error, aloneWorkers)
	begun := time.Now()
	for range aloneWorkers {
		workers.Go(func() {
			for work.Err() == nil {
				if err := do(ctx, a.batch()); err != nil {
					failures <- err
					return
				}
				count.Add(aloneBatch)
			}
		})
	}
	workers.Wait()
	counted := Count{Messages: count.Load(), Took: time.Since(begun)}
	close(failures)
	_, err := a.publisher.channel.QueuePurge(a.queue, false)
	for failure := range failures {
		err = errors.Join(err, failure)
	}
	return counted, err
}

func (a *Alone) batch() []*message {
	batch := make([]*message, aloneBatch)
	for i := range batch {
		n := a.ids.Add(1)
		batch[i] = &message{id: strconv.FormatUint(n, 10), routingKey: a.queue, body: a.bodies.Of(n)}
	}
	return batch
}
