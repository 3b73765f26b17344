package rabbitmqconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

const (
	// dialTimeout bounds connecting and the handshake.
	dialTimeout = 10 * time.Second
	// setUpTimeout bounds the set-up before consuming: a queue may have to find a leader first.
	setUpTimeout = 30 * time.Second
	// heartbeat: a half-open connection is noticed after about twice this.
	heartbeat = 5 * time.Second
	// closeTimeout bounds closing a connection whose broker may not answer any more.
	closeTimeout = 3 * time.Second
)

// errCancelled: the broker ended the consumer, because the queue was deleted or has moved.
var errCancelled = errors.New("the broker cancelled the consumer: was the queue deleted?")

// session consumes over one connection until the connection breaks or the run stops, and then waits for running
// handlers. served reports whether consuming began.
func (r *run) session(url string) (served bool, err error) {
	conn, err := r.dial(r.stopping, url, "consumer", dialTimeout)
	if err != nil {
		return false, err
	}
	watch, endWatch := context.WithCancel(r.stopping)
	var watching, returning lifecycle.Group
	defer func() {
		endWatch()
		conn.CloseWithin(closeTimeout)
		_ = watching.Wait(context.Background())
		_ = returning.Wait(context.Background())
	}()
	setUp := conn.Guard(setUpTimeout)
	defer setUp()
	ch, err := conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if r.Declare != nil {
		if err := r.Declare.apply(conn, ch, r.Queue, r.Logger); err != nil {
			return false, err
		}
	}
	if err := ch.Qos(r.Prefetch, 0, false); err != nil {
		return false, fmt.Errorf("set the prefetch: %w", err)
	}
	const tag = "msghandler"
	deliveries, err := ch.Consume(r.Queue, tag, false, false, false, false, nil)
	if err != nil {
		return false, fmt.Errorf("consume queue %q: %w", r.Queue, err)
	}
	r.learnLimit(conn)
	setUp()
	r.Logger.LogAttrs(r.stopping, slog.LevelInfo, "consuming",
		slog.Int("prefetch", r.Prefetch), slog.Int("concurrency", r.Concurrency))
	r.Consuming()
	watching.Go(func() { r.watchQueue(watch, conn) })

	if in := newIntake(deliveries); r.receive(in) {
		returning.Go(func() { giveBackRest(ch, tag, deliveries) })
		err := r.finish()
		endsWithin(&returning, closeTimeout)
		return true, err
	}
	select {
	case reason := <-closed:
		if reason != nil {
			return true, fmt.Errorf("the connection broke: %w", reason)
		}
		return true, errors.New("the connection broke")
	default:
		return true, errCancelled
	}
}

// learnLimit finds the delivery limit of the queue, which exists because it is consumed. Only a message that is
// returned to the queue after a failure meets the limit.
func (r *run) learnLimit(conn *amqpconn.Conn) {
	if r.parks() {
		return
	}
	limit, err := conn.DeliveryLimit(r.Queue)
	if err != nil {
		limit.Returns = amqpconn.Unlimited
		r.Logger.LogAttrs(r.stopping, slog.LevelDebug, "delivery limit unknown", slog.Any("cause", err))
	}
	r.deliveryLimit.Store(int64(limit.Returns))
}

// dial connects to one node. The connection's name holds its purpose.
func (c Config) dial(ctx context.Context, url, purpose string, within time.Duration) (*amqpconn.Conn, error) {
	host, _ := os.Hostname()
	conn, err := amqpconn.Dial(ctx, url, amqpconn.Config{
		Name: purpose + " of " + c.Queue + " on " + host + ", pid " + strconv.Itoa(os.Getpid()), TLS: c.TLS,
		Heartbeat: heartbeat, DialTimeout: within, WriteTimeout: heartbeat,
	})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// dialAny connects to the first node that answers, within dialTimeout or until the context ends. A silent node leaves
// time for the next nodes, and for the first calls on the connection.
func (c Config) dialAny(ctx context.Context, purpose string) (*amqpconn.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	until, _ := ctx.Deadline()
	urls := c.urls()
	var errs []error
	for i, url := range urls {
		conn, err := c.dial(ctx, url, purpose, dialShare(time.Until(until), len(urls)-i))
		if err == nil {
			return conn, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// dialShare is the share of the remaining time for the next of the nodes: as much as each later node gets, and as
// much as is kept for the calls after the connect.
func dialShare(left time.Duration, nodes int) time.Duration {
	return left / time.Duration(nodes+1)
}

// receive begins each delivery as soon as a handler is free. receive returns true when the run stops, and false when
// the deliveries end by themselves.
func (r *run) receive(in *intake) (stopped bool) {
	defer close(in.over)
	for {
		select {
		case <-r.stopping.Done():
			return true
		case r.slots <- struct{}{}:
		}
		select {
		case <-r.stopping.Done():
			<-r.slots
			return true
		case t := <-in.again:
			r.handlers.Go(func() { r.handle(in, t) })
		case d, ok := <-in.deliveries:
			if !ok {
				<-r.slots
				return r.stopped()
			}
			r.handlers.Go(func() { r.handle(in, &task{Delivery: d}) })
		}
	}
}

// handle calls the handler, and gives the broker the result.
func (r *run) handle(in *intake, t *task) {
	m, returns := newMessage(&t.Delivery)
	m.Queue, m.Consumer, t.returns = r.Queue, r.Name, returns
	if r.suspects(t) {
		<-r.slots
		r.wait(in, t)
		return
	}
	begun, kept := time.Now(), t.kept
	r.Observer.Begun(r.Queue)
	err := func() error {
		defer func() { <-r.slots }()
		if err := r.overDelivered(t); err != nil {
			return err
		}
		return r.handler.Handle(r.work, m)
	}()
	took := time.Since(begun)
	r.Observer.Ended(r.Queue, r.settle(t, m, err), took)
	if t.kept > kept {
		r.wait(in, t)
	}
}
