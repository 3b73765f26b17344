package consumer

import (
	"context"
	"fmt"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/amqpconn"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// watchDepth reports the number of waiting messages to the observer at intervals, until the context or the connection
// ends. A channel of its own is needed: the broker closes the channel when the queue does not exist.
func (r *run) watchDepth(ctx context.Context, conn *amqpconn.Conn) {
	if r.Observer == (unobserved{}) {
		return
	}
	for ctx.Err() == nil && !conn.IsClosed() {
		if err := r.reportDepth(conn); err != nil && ctx.Err() == nil && !conn.IsClosed() {
			r.Logger.LogAttrs(ctx, slog.LevelWarn, "the queue's depth is not known", slog.Any("cause", err))
		}
		_ = backoff.Sleep(ctx, r.DepthInterval)
	}
}

func (r *run) reportDepth(conn *amqpconn.Conn) error {
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	defer func() { _ = ch.Close() }()
	waiting, err := depth(ch, r.Queue)
	if err != nil {
		return err
	}
	r.Observer.Depth(r.Queue, waiting)
	if r.Declare == nil || r.Declare.DeadLetterExchange == "" {
		return nil
	}
	dead, err := depth(ch, r.Declare.deadLetterQueue(r.Queue))
	if err != nil {
		return err
	}
	of := r.Queue
	if r.Declare.DeadLetterKey != "" { // other queues may have the same dead letters
		of = r.Declare.deadLetterQueue(r.Queue)
	}
	r.Observer.DeadLetters(of, dead)
	return nil
}

// depth is how many messages of a queue no consumer has.
func depth(ch *amqp.Channel, queue string) (int, error) {
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	if err != nil {
		return 0, fmt.Errorf("look at queue %q: %w", queue, err)
	}
	return q.Messages, nil
}
