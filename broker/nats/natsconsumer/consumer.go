// Package natsconsumer lets a service receive messages of the coordinator from NATS JetStream, with the handlers, the
// middleware and the stores of package consumer.
//
//	c, err := natsconsumer.New(natsconsumer.Config{
//		URL:    "nats://127.0.0.1:4222",
//		Stream: "ORDERS", Name: "payments", DeadLetterStream: "DEAD",
//		Dedup:  memory.New(100_000),
//	})
//	err = c.Run(ctx, consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
//		return pay(ctx, m.ID, m.Body)
//	}))
//
// The messages come from a durable consumer with explicit acknowledgements. The answers of a handler mean what they
// mean in package consumer: a handled message and a duplicate are acknowledged, and the acknowledgement is confirmed by
// the server. A rejected message becomes a dead letter, and so does a message that fails for the MaxDeliveries-th time;
// see Config.MaxDeliveries. Any other failure brings the message back after a delay, by the server's own count of
// deliveries.
//
// A message is acknowledged only when its effect is done, or when the dead-letter stream has its copy.
package natsconsumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/logtext"
)

// reconnect are the delays before a reconnect.
var reconnect = backoff.Exponential(200*time.Millisecond, 15*time.Second)

const (
	// ioTimeout bounds reaching a server, each write, each acknowledgement and each dead letter.
	ioTimeout = 5 * time.Second
)

// Consumer receives the messages of one stream.
type Consumer struct {
	config  Config
	address address.NATS
}

// New checks the configuration. New makes no connection.
func New(config Config) (*Consumer, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	where, err := address.ParseNATS(config.URL)
	return &Consumer{config: config, address: where}, err
}

// Run hands the stream's messages to h until ctx ends, and reconnects whenever the connection breaks. After the end of
// ctx, Run takes no further message, lets the handlers finish, acknowledges, and returns nil; messages that were
// received but not begun go back. Run returns an error when handlers outlast Config.StopTimeout. Run may be called
// several times, also at once.
func (c *Consumer) Run(ctx context.Context, h consumer.Handler) error {
	work, cancel := context.WithCancel(logtext.With(context.WithoutCancel(ctx), c.config.language()))
	defer cancel()
	r := &run{
		Config: c.config, address: c.address, handler: adapter.Around(h, c.config.Dedup, c.config.Logger),
		retry: c.config.Retry, stopping: ctx, work: work, id: rand.Text()[:8],
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		consumed, err := r.session()
		if ctx.Err() != nil {
			break
		}
		if consumed {
			failures = 0
		}
		delay := reconnect.Delay(failures)
		r.Logger.LogAttrs(ctx, slog.LevelWarn, "not consuming, trying again",
			slog.Int64("retry_in_ms", delay.Milliseconds()), slog.Any("cause", err))
		_ = backoff.Sleep(ctx, delay) // An error is the context's: the loop ends.
	}
	return r.finish(cancel)
}

// run is the state of a call of Run.
type run struct {
	Config
	address address.NATS
	handler consumer.Handler
	retry   backoff.Steps
	// stopping ends when no further message is to be begun; work, the handlers' context, ends some time after.
	stopping, work context.Context
	// handlers has the workers of all sessions: handlers of a lost connection go on.
	handlers lifecycle.Group
	failures failures
	// id names this run in the notes of the durable consumer, and noting is held to change the notes.
	id     string
	noting sync.Mutex
	// forbidden has the beginnings of the subjects whose refusal was logged.
	forbidden sync.Map
}

// finish waits until no handler runs. After StopTimeout the handlers' context ends.
func (r *run) finish(cancelWork context.CancelFunc) error {
	if endsWithin(&r.handlers, r.StopTimeout) {
		return nil
	}
	cancelWork()
	endsWithin(&r.handlers, adapter.CancelGrace)
	return fmt.Errorf("handlers took longer than the %v of StopTimeout; their messages will be redelivered", r.StopTimeout)
}

func endsWithin(g *lifecycle.Group, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return g.Wait(ctx) == nil
}

// session consumes over one connection until the connection breaks or the run stops.
func (r *run) session() (consumed bool, err error) {
	connected, lost := context.WithCancel(context.Background())
	refusals := &natsconn.Refusals{}
	conn, err := natsconn.Dial(r.stopping, r.address, natsconn.Config{
		Name: "consumer " + r.Name, TLS: r.TLS, DialTimeout: ioTimeout, PingInterval: ioTimeout, WriteTimeout: ioTimeout,
		OnError:  func(err error) { r.reportError(err, refusals.Note(err)) },
		OnClosed: lost,
	})
	if err != nil {
		lost()
		return false, err
	}
	js, err := jetstream.New(conn)
	if err != nil {
		conn.Close()
		return false, err
	}
	durable, err := r.open(js, refusals)
	if err != nil {
		conn.Close()
		return false, err
	}
	r.Consuming()
	s := &session{
		run: r, js: js, durable: durable, refusals: refusals,
		tasks: make(chan *task, 2*r.Prefetch), places: make(chan struct{}, r.Prefetch),
		waiting: make(chan struct{}, r.Prefetch), connected: connected, created: durable.CachedInfo().Created,
	}
	s.over, s.endPull = context.WithCancel(context.Background())
	for range r.Prefetch {
		s.places <- struct{}{}
	}
	var workers lifecycle.Group
	for range r.Concurrency {
		workers.Go(s.work)
	}
	watching, unwatch := context.WithCancel(r.stopping)
	defer unwatch()
	workers.Go(func() { s.watchConsumer(watching, durable) })
	err = s.receive(durable)
	s.end(durable, err)
	// The connection stays until the handlers have acknowledged.
	r.handlers.Go(func() {
		_ = workers.Wait(context.Background())
		conn.Close()
	})
	return !errors.Is(err, natsconn.ErrForbidden), err
}

// reportError logs an error that NATS sent apart from any answer, unless a request ends with the error and tells it.
// Each acknowledgement has a subject of its own, so one line stands for all subjects with the same beginning.
func (r *run) reportError(err error, isTold bool) {
	if isTold {
		return
	}
	text := "NATS reports an error"
	if subject := natsconn.Forbidden(err); subject != "" {
		const words = 4 // $JS.ACK.STREAM.NAME
		parts := strings.SplitN(subject, ".", words+1)
		if _, isLogged := r.forbidden.LoadOrStore(strings.Join(parts[:min(len(parts), words)], "."), true); isLogged {
			return
		}
		text = "NATS forbids a subject; what the consumer sends there is lost; grant the user the permission"
	}
	r.Logger.LogAttrs(r.work, slog.LevelWarn, text, slog.Any("cause", err))
}

// maxDelayed is how many messages may wait on the server for their next delivery, beside those that are with a process.
const maxDelayed = 1000

// noLimit is the MaxDeliver of durable consumers: a message past a limit of JetStream would stay without a dead letter.
const noLimit = -1

// createSubject and infoSubject begin the subjects of requests about the durable consumer.
func (r *run) createSubject() string { return "$JS.API.CONSUMER.CREATE." + r.Stream + "." + r.Name }
func (r *run) infoSubject() string   { return "$JS.API.CONSUMER.INFO." + r.Stream + "." + r.Name }

// open finds or makes the durable consumer.
func (r *run) open(js jetstream.JetStream, refusals *natsconn.Refusals) (durable jetstream.Consumer, err error) {
	ctx, cancel := context.WithTimeout(r.stopping, ioTimeout)
	defer cancel()
	var notes map[string]string // without an answer, the processes begin the notes anew
	_ = refusals.Ask(ctx, r.infoSubject(), func(ctx context.Context) error {
		existing, err := js.Consumer(ctx, r.Stream, r.Name)
		if err == nil {
			notes = existing.CachedInfo().Config.Metadata
		}
		return err
	})
	err = refusals.Ask(ctx, r.createSubject(), func(ctx context.Context) (err error) {
		durable, err = js.CreateOrUpdateConsumer(ctx, r.Stream, jetstream.ConsumerConfig{
			Durable: r.Name, AckPolicy: jetstream.AckExplicitPolicy, AckWait: r.AckWait,
			MaxAckPending:  r.Prefetch + maxDelayed,
			FilterSubjects: r.Subjects, MaxDeliver: noLimit, Metadata: notes,
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("consumer %q of the stream %q: %w", r.Name, r.Stream, err)
	}
	return durable, nil
}

// errEnded: the pull has ended, because of the connection, the stream or the consumer.
var errEnded = errors.New("the pull has ended")
