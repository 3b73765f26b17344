// Package kafka publishes messages to Kafka and reports the cluster's answer to each.
//
// The exchange of a message is the topic, and the routing key is the key of the record. A message is done only when all
// in-sync replicas have the record. These keep the promise:
//   - package kafkaconn: an idempotent writer that says of each record whether a broker may have it.
//   - the table publish.Routes: the first message to a topic is a probe, so that a missing topic costs one question. A
//     topic that takes no messages keeps no others waiting.
//   - publishcall.go: one batch on its way. Messages of a refused batch of records are written again, each alone.
//   - publisher.go: keeps a producer for as long as the cluster answers, and reports the state.
package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// The reasons why nothing can be published for now. The errors of Ready and the causes of Unsent wrap one of them,
// unless the caller's context is the reason.
var (
	// ErrDisconnected: no broker of the cluster answers.
	ErrDisconnected = errors.New("not connected to the broker")
	// ErrBlocked: the cluster answers that it cannot take messages, as without enough replicas.
	ErrBlocked = errors.New("the broker takes no messages for now")
	// ErrStopped: Close was called.
	ErrStopped = errors.New("the publisher has stopped")
)

// Config says how to publish. Zero values take the defaults.
type Config struct {
	// URL is the address of one cluster, kafka://host:port,host:port with options; see address.ParseKafka.
	URL string
	// ConfirmTimeout bounds Publish: a message without an answer by then is Unsure. Messages are sent in the first half,
	// so that each has at least the other half to be acknowledged.
	ConfirmTimeout time.Duration
	// Window is how many messages may be in flight at once.
	Window int
	// Logger gets a line for each change of the connection. Default slog.Default().
	Logger *slog.Logger

	// Tests choose shorter times.
	reachTimeout time.Duration
}

const (
	// reachEvery is how often the publisher looks whether the cluster answers, also without messages.
	reachEvery = 5 * time.Second
	// reachTimeout is how long the cluster may take to answer before it counts as lost.
	reachTimeout = 3 * time.Second
	// blockedAfter is how long no message was stored in any topic before a topic that takes no messages means that the
	// whole cluster takes none.
	blockedAfter = 5 * time.Second
	// blockedPause is how long nothing is sent then, before the next message tries.
	blockedPause = 2 * time.Second
	// steady is the lifetime after which a connection counts as healthy: its end starts the waits anew.
	steady = time.Second
	// endTimeout is how long Close waits for goroutines after the end of the connection.
	endTimeout = 5 * time.Second
)

// reconnect are the waits between attempts to reach the cluster.
var reconnect = backoff.Exponential(100*time.Millisecond, 5*time.Second)

// Publisher is a halfmsg.Publisher for one cluster. It reconnects by itself, and is safe for concurrent use.
type Publisher struct {
	config  Config
	address address.Kafka
	routes  *publish.Routes
	// slots holds one element for each message in flight.
	slots chan struct{}
	// nudged has an element when the cluster may be lost, and must be looked at now.
	nudged chan struct{}

	cancel     context.CancelFunc
	background lifecycle.Group

	mu       sync.Mutex
	producer *kafkaconn.Producer // nil: the cluster is out of reach
	reason   error               // why there is no producer
	// refused is why the cluster lets the user write nothing; it ends the producer.
	refused error
	// blocked is why the cluster takes no messages; the error counts until blockedUntil.
	blocked                error
	blockedUntil, storedAt time.Time
	stopped                bool
	// calls counts the calls of Publish under way; idle is closed when none is left after Close was called.
	calls int
	idle  chan struct{}
}

// New returns a publisher and does not wait for the cluster: the publisher connects in the background, and Ready
// reports the state. An error says what of the URL is not valid; it never holds the URL.
func New(config Config) (*Publisher, error) {
	config = config.complete()
	if config.ConfirmTimeout <= 0 || config.Window <= 0 {
		return nil, errors.New("kafka: ConfirmTimeout and Window are required")
	}
	cluster, err := address.ParseKafka(config.URL)
	if err != nil {
		return nil, fmt.Errorf("the URL of the broker %w", err)
	}
	if _, err := (kafkaconn.Config{Address: cluster}).Options(); err != nil {
		return nil, err // a file that the URL names cannot be used
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{
		config: config, address: cluster,
		// Without pauses: the send loop keeps the messages of a stalled topic back by their send.backoff.
		routes: publish.NewRoutes(nil),
		slots:  make(chan struct{}, config.Window),
		nudged: make(chan struct{}, 1),
		cancel: cancel,
		reason: ErrDisconnected,
		idle:   make(chan struct{}),
	}
	p.background.Go(func() { p.run(ctx) })
	return p, nil
}

func (c Config) complete() Config {
	c.reachTimeout = cmp.Or(c.reachTimeout, reachTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Ready is nil while the cluster takes messages. Otherwise the error is ErrDisconnected, ErrBlocked or ErrStopped with
// the cause.
func (p *Publisher) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.obstacle()
}

// obstacle says why nothing can be sent now; p.mu is held.
func (p *Publisher) obstacle() error {
	switch {
	case p.stopped:
		return ErrStopped
	case p.producer == nil:
		return p.reason
	case time.Now().Before(p.blockedUntil):
		return p.blocked
	default:
		return nil
	}
}

// InFlight is how many messages the cluster has yet to answer.
func (p *Publisher) InFlight() int { return len(p.slots) }

// Close refuses new messages, waits for the answers to messages in flight, and closes the connections. When the
// context ends first, the connections are closed at once: messages in flight are Unsure then, and Close returns the
// context's error. Close may be called more than once.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	p.stopped = true
	p.endCalls(0)
	p.mu.Unlock()
	var err error
	select {
	case <-p.idle:
	case <-ctx.Done():
		err = fmt.Errorf("close the publisher with messages in flight: %w", ctx.Err())
	}
	p.cancel()
	<-p.idle // a closed producer answers each message
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if stuck := p.background.Wait(ending); stuck != nil {
		err = errors.Join(err, fmt.Errorf("wait for the end of the connections: %w", stuck))
	}
	return err
}

// enter counts a call of Publish, unless Close was called. The caller must call leave.
func (p *Publisher) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return ErrStopped
	}
	p.calls++
	return nil
}

func (p *Publisher) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.endCalls(1)
}

// endCalls counts calls that have ended, and closes idle with the last call after Close; p.mu is held.
func (p *Publisher) endCalls(n int) {
	p.calls -= n
	if !p.stopped || p.calls > 0 {
		return
	}
	select {
	case <-p.idle: // closed by an earlier call of Close
	default:
		close(p.idle)
	}
}

// current gives the producer to write with, or an error that says why nothing can be sent.
func (p *Publisher) current() (*kafkaconn.Producer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.producer, p.obstacle()
}

// nudge has the cluster looked at now.
func (p *Publisher) nudge() {
	select {
	case p.nudged <- struct{}{}:
	default:
	}
}

// run keeps a producer for as long as the cluster answers, until the context ends.
func (p *Publisher) run(ctx context.Context) {
	hosts := strings.Join(p.address.Hosts, ",")
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		lost := p.connect(ctx, hosts)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steady && !errors.As(lost, new(*unreachedError)) {
			failures = 0
		}
		p.set(func() { p.reason = fmt.Errorf("%w: %w", ErrDisconnected, lost) })
		level := slog.LevelWarn
		if failures > 0 {
			level = slog.LevelDebug // The first failure was logged; Ready reports the latest reason.
		}
		p.config.Logger.Log(ctx, level, "no connection to the broker; messages wait in the store; the publisher reconnects",
			"broker", hosts, "cause", lost)
		_ = backoff.Sleep(ctx, reconnect.Delay(failures)) // An error is the context's: the loop ends.
		failures++
	}
}

func (p *Publisher) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// unreachedError says that no broker has answered a new producer.
type unreachedError struct{ cause error }

func (e *unreachedError) Error() string { return "connect: " + e.cause.Error() }
func (e *unreachedError) Unwrap() error { return e.cause }

// connect uses one producer until the cluster is lost, and returns why it was lost.
func (p *Publisher) connect(ctx context.Context, hosts string) error {
	producer, err := p.newProducer()
	if err != nil {
		return &unreachedError{cause: err}
	}
	// The producer answers every message in flight when it is closed. Messages must not get it any more by then.
	defer producer.Close()
	if err := p.reach(ctx, producer); err != nil {
		return &unreachedError{cause: err}
	}
	p.routes.Reset()
	p.set(func() { p.producer, p.refused, p.blockedUntil, p.storedAt = producer, nil, time.Time{}, time.Now() })
	defer p.set(func() { p.producer = nil })
	p.config.Logger.InfoContext(ctx, "connected to the broker", "broker", hosts)
	return p.watch(ctx, producer)
}

// watch looks at the cluster from time to time, and returns why the cluster is lost.
func (p *Publisher) watch(ctx context.Context, producer *kafkaconn.Producer) error {
	tick := time.NewTicker(reachEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-p.nudged:
		case <-ctx.Done():
			return ctx.Err()
		}
		p.mu.Lock()
		refused := p.refused
		p.mu.Unlock()
		if refused != nil {
			return refused
		}
		if err := p.reach(ctx, producer); err != nil {
			return err
		}
	}
}

func (p *Publisher) reach(ctx context.Context, producer *kafkaconn.Producer) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.reachTimeout)
	defer cancel()
	return producer.Reach(ctx)
}

func (p *Publisher) newProducer() (*kafkaconn.Producer, error) {
	return kafkaconn.NewProducer(kafkaconn.ProducerConfig{
		Config: kafkaconn.Config{Address: p.address, Name: "msghandler", AnswerTimeout: p.config.ConfirmTimeout / 2},
		// Messages that are written alone have no slot.
		Window: 2 * p.config.Window,
		OnLoss: p.nudge,
		OnDataLoss: func(topic string, partition int32) {
			p.config.Logger.Error("Kafka has lost acknowledged records; consumers miss messages; look at the cluster's log",
				"topic", topic, "partition", partition)
		},
	})
}

// learn takes the answer to a message as the cluster's answer about the topic and about itself.
func (p *Publisher) learn(m *publish.Message, answer kafkaconn.Answer) {
	switch {
	case answer.Fate == kafkaconn.Stored, answer.Fate == kafkaconn.BatchRefused:
		p.routes.Accept(m.Exchange)
		p.routes.Answered(m)
		p.set(func() { p.storedAt, p.blockedUntil = time.Now(), time.Time{} })
	case answer.Fate == kafkaconn.TopicRefused:
		p.routes.Reject(m.Exchange, answer.Err)
		p.routes.Answered(m)
	case answer.Fate == kafkaconn.AccessRefused:
		p.set(func() { p.refused = answer.Err })
		p.nudge()
	case answer.Blocked():
		p.stall(m)
		p.noteBlocked(answer.Err)
	default:
		p.stall(m)
		p.nudge()
	}
}

// stall lets one message at a time probe the topic.
func (p *Publisher) stall(m *publish.Message) {
	p.routes.Unanswered(m)
	p.routes.Release(m)
}

// noteBlocked records that a topic takes no messages. While no other topic takes messages either, nothing is sent for
// a while: the messages wait in the store, and not here.
func (p *Publisher) noteBlocked(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if now.Sub(p.storedAt) < blockedAfter {
		return
	}
	if !now.Before(p.blockedUntil) {
		p.config.Logger.Warn("no topic takes messages; they wait in the store; look at the replicas of the topics",
			"cause", why)
	}
	p.blocked = fmt.Errorf("%w: %w", ErrBlocked, why)
	p.blockedUntil = now.Add(blockedPause)
}

var _ halfmsg.Publisher = (*Publisher)(nil)
