package rabbitmqconsumer

import (
	"context"
	"fmt"
	"log/slog"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// watchQueue looks at the queue at intervals, until the context or the connection ends. A channel of its own is needed:
// the broker closes the channel when a queue does not exist, or has other arguments.
func (r *run) watchQueue(ctx context.Context, conn *amqpconn.Conn) {
	if r.Observer == (adapter.Unobserved{}) && r.Declare == nil {
		return
	}
	known := ""
	for ctx.Err() == nil && !conn.IsClosed() {
		if err := r.reportDepth(conn); err != nil && ctx.Err() == nil && !conn.IsClosed() {
			r.Logger.LogAttrs(ctx, slog.LevelWarn, "the queue's depth is not known", slog.Any("cause", err))
		}
		if backoff.Sleep(ctx, r.DepthInterval) != nil || conn.IsClosed() {
			return
		}
		trouble := ""
		if err := r.declareAgain(conn); err != nil {
			trouble = err.Error()
		}
		if trouble != "" && trouble != known && ctx.Err() == nil && !conn.IsClosed() {
			r.Logger.LogAttrs(ctx, slog.LevelWarn, "topology not declared again; what was deleted of it stays away; "+
				"correct Declare, or delete what contradicts it", slog.String("cause", trouble))
		}
		known = trouble
	}
}

// declareAgain makes what was deleted of the topology. An exchange that is made again has no bindings, and the broker
// tells no consumer of the queue. A delay queue or a dead-letter queue that is gone keeps its messages here.
func (r *run) declareAgain(conn *amqpconn.Conn) error {
	if r.Declare == nil {
		return nil
	}
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	defer func() { _ = ch.Close() }()
	return r.Declare.apply(conn, ch, r.Queue, slog.New(slog.DiscardHandler)) // warnings were logged at the connect
}

// reportDepth reports the number of waiting messages to the observer.
func (r *run) reportDepth(conn *amqpconn.Conn) error {
	if r.Observer == (adapter.Unobserved{}) {
		return nil
	}
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
