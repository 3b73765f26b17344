package consumer

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/backoff"
)

const (
	// dialTimeout bounds connecting and the handshake.
	dialTimeout = 10 * time.Second
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
	conn, err := r.dial(url)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.CloseDeadline(time.Now().Add(closeTimeout)) }()
	ch, err := conn.Channel()
	if err != nil {
		return false, fmt.Errorf("open a channel: %w", err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if r.Declare != nil {
		if err := r.Declare.on(ch, r.Queue); err != nil {
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
	r.Logger.LogAttrs(r.stopping, slog.LevelInfo, "consuming",
		slog.String("queue", r.Queue), slog.Int("prefetch", r.Prefetch), slog.Int("concurrency", r.Concurrency))
	r.Consuming()

	if r.receive(deliveries) {
		// Closing the channel gives back what was received and not begun.
		_ = ch.Cancel(tag, true)
		return true, r.finish()
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

func (r *run) dial(url string) (*amqp.Connection, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	properties := amqp.NewConnectionProperties()
	host, _ := os.Hostname()
	properties.SetClientConnectionName("consumer of " + r.Queue + " on " + host + ", pid " + strconv.Itoa(os.Getpid()))
	conn, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat: heartbeat, TLSClientConfig: r.TLS, Properties: properties,
		Dial: func(network, addr string) (net.Conn, error) {
			conn, err := dialer.DialContext(r.stopping, network, addr)
			if err != nil {
				return nil, err
			}
			// For the handshake; the library lifts it afterwards.
			return conn, conn.SetDeadline(time.Now().Add(dialTimeout))
		},
	})
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// receive begins each delivery as soon as a handler is free. It returns true when the run stops, and false when the
// deliveries end by themselves.
func (r *run) receive(deliveries <-chan amqp.Delivery) (stopped bool) {
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
		case d, ok := <-deliveries:
			if !ok {
				<-r.slots
				return r.stopped()
			}
			r.inHand.Go(func() { r.handle(d) })
		}
	}
}

// handle has a message handled, and tells the broker what became of it.
func (r *run) handle(d amqp.Delivery) {
	m := newMessage(&d)
	err := func() error {
		defer func() { <-r.slots }()
		return r.handler.Handle(r.work, m)
	}()
	switch {
	case err == nil:
		r.answer(m, d.Ack(false))
	case isReject(err):
		r.Logger.LogAttrs(r.work, slog.LevelWarn, "message rejected", append(name(m), slog.Any("error", err))...)
		r.answer(m, d.Reject(false))
	default:
		delay := r.retry.Delay(failuresBefore(m))
		r.logFailure(m, err, delay)
		// A stop does not wait for the pause: the message goes back now.
		_ = backoff.Sleep(r.stopping, delay)
		r.answer(m, d.Nack(false, true))
	}
}

// failuresBefore is a guess where the queue does not count.
func failuresBefore(m *Message) int {
	if m.Deliveries == 0 && m.Redelivered {
		return 1
	}
	return m.Deliveries
}

func (r *run) logFailure(m *Message, err error, delay time.Duration) {
	line := append(name(m), slog.Duration("again_in", delay), slog.Any("error", err))
	var panicked *PanicError
	switch {
	case errors.Is(err, ErrBusy):
		r.Logger.LogAttrs(r.work, slog.LevelDebug, "another copy of a message is in hand", line...)
		return
	case errors.As(err, &panicked):
		line = append(line, slog.String("stack", string(panicked.Stack)))
	}
	r.Logger.LogAttrs(r.work, slog.LevelWarn, "message not handled, it comes again", line...)
}

// answer logs an answer that did not reach the broker: the connection is gone, and the message comes again.
func (r *run) answer(m *Message, err error) {
	if err != nil {
		r.Logger.LogAttrs(r.work, slog.LevelWarn, "the broker was not told what became of a message, it comes again",
			append(name(m), slog.Any("error", err))...)
	}
}
