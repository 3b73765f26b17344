package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/amqpconn"
)

const (
	// dialTimeout bounds connecting and the handshake.
	dialTimeout = 10 * time.Second
	// setUpTimeout bounds what is to be said before a consumer consumes: a queue may have to find a leader first.
	setUpTimeout = 30 * time.Second
	// heartbeat: a half-open connection is noticed after about twice this.
	heartbeat = 5 * time.Second
	// closeTimeout bounds the farewell to a broker that may not listen any more.
	closeTimeout = 3 * time.Second
)

// errCancelled: the broker ended the consumer, because the queue was deleted or has moved.
var errCancelled = errors.New("the broker cancelled the consumer: was the queue deleted?")

// session consumes over one connection until that breaks or the run stops; then it waits for what is in hand. served
// says whether it got as far as consuming.
func (r *run) session(url string) (served bool, err error) {
	conn, err := r.dial(r.stopping, url, "consumer", dialTimeout)
	if err != nil {
		return false, err
	}
	watch, endWatch := context.WithCancel(r.stopping)
	var watching sync.WaitGroup
	defer func() {
		endWatch()
		conn.CloseWithin(closeTimeout)
		watching.Wait()
	}()
	setUp := conn.Guard(setUpTimeout)
	defer setUp()
	ch, err := conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if r.Declare != nil {
		if err := r.Declare.on(conn, ch, r.Queue, r.Logger); err != nil {
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
	watching.Go(func() { r.watchDepth(watch, conn) })

	if in := newIntake(deliveries); r.receive(in) {
		returned := make(chan struct{})
		watching.Go(func() {
			defer close(returned)
			giveBackRest(ch, tag, deliveries)
		})
		err := r.finish()
		within(returned, closeTimeout)
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

// learnLimit finds the delivery limit of the queue, which exists because it is consumed. Only a message that is given
// back to the queue after a failure meets the limit.
func (r *run) learnLimit(conn *amqpconn.Conn) {
	if r.parks() {
		return
	}
	limit, err := conn.DeliveryLimit(r.Queue)
	if err != nil {
		limit.Returns = amqpconn.Unlimited
		r.Logger.LogAttrs(r.stopping, slog.LevelDebug, "delivery limit unknown", slog.Any("error", err))
	}
	r.deliveryLimit.Store(int64(limit.Returns))
}

// dial connects to one node. The connection's name says what it is for.
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

// dialAny connects to the first node that answers, in dialTimeout or until the context ends. A node that says nothing
// leaves time for those behind it, and for what is to be said once there is a connection.
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

// dialShare is how much of the time that is left the next of so many nodes gets: as much as each of those behind it,
// and as is kept for what follows.
func dialShare(left time.Duration, nodes int) time.Duration {
	return left / time.Duration(nodes+1)
}

// receive begins each delivery as soon as a handler is free. It returns true when the run stops, and false when the
// deliveries end by themselves.
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
			r.inHand.Go(func() { r.handle(in, t) })
		case d, ok := <-in.deliveries:
			if !ok {
				<-r.slots
				return r.stopped()
			}
			r.inHand.Go(func() { r.handle(in, &task{Delivery: d}) })
		}
	}
}

// handle has a message handled, and tells the broker what became of it.
func (r *run) handle(in *intake, t *task) {
	m := newMessage(&t.Delivery)
	m.Queue, m.Consumer = r.Queue, r.Name
	begun, kept := time.Now(), t.kept
	r.Observer.Begun(r.Queue)
	err := func() error {
		defer func() { <-r.slots }()
		return r.handler.Handle(r.work, m)
	}()
	took := time.Since(begun)
	r.Observer.Ended(r.Queue, r.settle(t, m, err), took)
	if t.kept > kept {
		r.wait(in, t)
	}
}
