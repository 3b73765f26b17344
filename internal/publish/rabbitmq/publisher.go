// Package rabbitmq publishes messages to RabbitMQ and reports the broker's answer to each.
//
// A message is done only when the broker has acknowledged the message and has not returned it. These keep the promise:
//   - confirmchannel.go: a channel in confirm mode with its unconfirmed messages. It matches returns and confirmations.
//   - the table publish.Routes: the first message to an exchange travels isolated, so that a rejected message closes no
//     other message's channel; and messages to queues that do not confirm take no places from others.
//   - connection.go: one connection, from dial to loss. Nothing of a lost connection is used again.
//   - publishcall.go: one batch on its way; isolated.go: a message that travels isolated.
//   - publisher.go: keeps a connection and a channel up, and reports their state.
package rabbitmq

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/ground/versions"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// The reasons why nothing can be published for now. The errors of Ready and the causes of Unsent wrap one of them,
// unless the caller's context is the reason.
var (
	// ErrDisconnected: there is no connection to the broker.
	ErrDisconnected = errors.New("not connected to the broker")
	// ErrBlocked: the broker has raised an alarm (memory, disk) and takes no messages.
	ErrBlocked = errors.New("the broker takes no messages for now")
	// ErrStopped: Close was called.
	ErrStopped = errors.New("the publisher has stopped")
)

// Config says how to publish. Zero values take the defaults.
type Config struct {
	// URLs are the addresses of one broker or of the nodes of one cluster, amqp:// or amqps://, tried in turn. At least
	// one is needed. A heartbeat in a URL wins over the heartbeat of the publisher.
	URLs []string
	// ConfirmTimeout bounds Publish: a message without an answer by then is Unsure. Messages are sent in the first half,
	// so that each has at least the other half to be acknowledged.
	ConfirmTimeout time.Duration
	// Window is how many messages may be in flight at once.
	Window int
	// Logger gets a line for each change of the connection. Default slog.Default().
	Logger *slog.Logger

	// Tests choose shorter times.
	heartbeat, writeTimeout time.Duration
}

const (
	// heartbeat is the interval of heartbeats; after three intervals of silence the peer is lost.
	heartbeat = 5 * time.Second
	// writeTimeout is how long one write to the network may take before the connection is closed.
	writeTimeout = 3 * time.Second
)

// reconnect are the waits between attempts to connect.
var reconnect = backoff.Exponential(100*time.Millisecond, 5*time.Second)

// reopen are the waits before a channel is opened again: the more channels were closed in a row, the longer.
var reopen = backoff.Exponential(time.Millisecond, time.Second)

// steady is the lifetime after which a connection or channel counts as healthy: its end starts the waits anew.
const steady = time.Second

// endTimeout is how long Close waits for goroutines of a connection after its end.
const endTimeout = 5 * time.Second

// Publisher is a halfmsg.Publisher on one connection. It reconnects by itself, and is safe for concurrent use.
type Publisher struct {
	config Config
	nodes  []address.AMQP
	routes *publish.Routes
	// slots holds one element for each message in flight.
	slots chan struct{}
	// isolated holds the idle channels for isolated messages; nil is a channel that is still to be opened.
	isolated chan *confirmChannel

	cancel context.CancelFunc
	// background has every goroutine that is not part of a call of Publish.
	background lifecycle.Group

	mu sync.Mutex
	// changed is closed and replaced whenever a field below changes.
	changed    chan struct{}
	connection *connection     // nil: there is none
	channel    *confirmChannel // shared by messages; nil: being opened
	reason     error           // why there is no connection
	blocked    error           // set during an alarm of the broker
	stopped    bool
	// calls counts the calls of Publish under way; idle is closed when none is left after Close was called.
	calls int
	idle  chan struct{}
}

// New returns a publisher and does not wait for the broker: the publisher connects in the background, and Ready reports
// the state. An error says which URL is not valid; it never holds the URL.
func New(config Config) (*Publisher, error) {
	config = config.complete()
	if config.ConfirmTimeout <= 0 || config.Window <= 0 {
		return nil, errors.New("rabbitmq: ConfirmTimeout and Window are required")
	}
	nodes, err := parseNodes(config.URLs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{
		config: config,
		nodes:  nodes,
		// Without pauses: the send loop keeps the messages of a stalled route back by their send.backoff.
		routes:   publish.NewRoutes(nil),
		slots:    make(chan struct{}, config.Window),
		isolated: make(chan *confirmChannel, isolatedChannels),
		cancel:   cancel,
		changed:  make(chan struct{}),
		reason:   ErrDisconnected,
		idle:     make(chan struct{}),
	}
	for range isolatedChannels {
		p.isolated <- nil
	}
	p.background.Go(func() { p.run(ctx) })
	return p, nil
}

func (c Config) complete() Config {
	c.heartbeat = cmp.Or(c.heartbeat, heartbeat)
	c.writeTimeout = cmp.Or(c.writeTimeout, writeTimeout)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Ready is nil while the broker takes messages. Otherwise the error is ErrDisconnected, ErrBlocked or ErrStopped with
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
	case p.connection == nil:
		return p.reason
	default:
		return p.blocked
	}
}

// InFlight is how many messages the broker has yet to answer.
func (p *Publisher) InFlight() int { return len(p.slots) }

// Close refuses new messages, waits for the answers to messages in flight, and closes the connection. When the
// context ends first, the connection is closed at once: messages in flight are Unsure then, and Close returns the
// context's error. Close may be called more than once.
func (p *Publisher) Close(ctx context.Context) error {
	p.change(func() {
		p.stopped = true
		p.endCalls(0)
	})
	var err error
	select {
	case <-p.idle:
	case <-ctx.Done():
		err = fmt.Errorf("close the publisher with messages in flight: %w", ctx.Err())
	}
	p.cancel()
	<-p.idle // without a connection each call has its outcomes
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	if stuck := p.background.Wait(ending); stuck != nil {
		err = errors.Join(err, fmt.Errorf("wait for the end of the connection: %w", stuck))
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

// change changes the publisher's state and wakes the callers that wait for a change.
func (p *Publisher) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

// state gives the channel to send on, nil while the channel is being opened, and a channel that is closed at the next
// change. An error says why nothing can be sent.
func (p *Publisher) state() (*confirmChannel, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.channel, p.changed, p.obstacle()
}

// run keeps a connection up until the context ends.
func (p *Publisher) run(ctx context.Context) {
	for turn, failures := 0, 0; ctx.Err() == nil; turn++ {
		node := p.nodes[turn%len(p.nodes)]
		began := time.Now()
		lost := p.connect(ctx, node)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > steady && !errors.As(lost, new(*dialError)) {
			failures = 0
		}
		p.change(func() { p.reason = fmt.Errorf("%w: %w", ErrDisconnected, lost) })
		level := slog.LevelWarn
		if failures > 0 {
			level = slog.LevelDebug // The first failure was logged; Ready reports the latest reason.
		}
		p.config.Logger.Log(ctx, level, "no connection to the broker; messages wait in the store; the publisher reconnects",
			"broker", node.Host, "cause", lost)
		_ = backoff.Sleep(ctx, reconnect.Delay(failures)) // An error is the context's: the loop ends.
		failures++
	}
}

// connect uses one connection to its end and returns why the connection ended.
func (p *Publisher) connect(ctx context.Context, node address.AMQP) error {
	c, err := dial(ctx, node, p.config, &p.background)
	if err != nil {
		return err
	}
	defer c.close()
	p.routes.Reset()
	p.change(func() { p.connection = c })
	defer p.change(func() { p.connection, p.channel, p.blocked = nil, nil, nil })
	p.config.Logger.InfoContext(ctx, "connected to the broker", "broker", node.Host)
	if about := c.conn.Properties; ageOf(about) == TooOld {
		p.config.Logger.WarnContext(ctx,
			"the broker's version is not supported; msghandler is not tested with it; upgrade the broker",
			"broker", node.Host, "broker_server", serverOf(about), "oldest", versions.RabbitMQ.Oldest.String())
	}
	return p.serve(ctx, c)
}

// serve keeps a channel open until the connection or the context ends, and watches for alarms.
func (p *Publisher) serve(ctx context.Context, c *connection) error {
	blocked := c.blocked
	var ch *confirmChannel
	var began time.Time
	failures := 0
	for {
		if ch == nil && p.unblocked() {
			stop := context.AfterFunc(ctx, c.conn.HangUp) // the broker may not answer, and Close waits
			var err error
			ch, err = c.open(p.config.Window, p.routes.Isolate)
			if stop(); err != nil {
				return err
			}
			began = time.Now()
			p.change(func() { p.channel = ch })
		}
		select {
		case b, open := <-blocked:
			if !open {
				blocked = nil // The connection is ending.
				continue
			}
			p.setBlocked(b.Active, b.Reason)
		case <-retired(ch):
			p.retire(ch)
			if c.conn.IsClosed() {
				return c.reason()
			}
			p.logClosed(ch)
			ch = nil
			if failures++; time.Since(began) > steady {
				failures = 0
			}
			_ = backoff.Sleep(ctx, reopen.Delay(failures)) // An error is the context's: the loop ends.
		case <-c.ended:
			return c.reason()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// retired is closed when the channel takes no more messages; nil without a channel.
func retired(ch *confirmChannel) <-chan struct{} {
	if ch == nil {
		return nil
	}
	return ch.retired
}

func (p *Publisher) unblocked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocked == nil
}

func (p *Publisher) setBlocked(active bool, reason string) {
	if !active {
		p.routes.ResetStalled()
		p.change(func() { p.blocked = nil })
		p.config.Logger.Info("the broker's alarm has ended; publishing goes on")
		return
	}
	p.change(func() { p.blocked = fmt.Errorf("%w: %s", ErrBlocked, reason) })
	p.config.Logger.Warn("the broker raised an alarm; messages wait in the store; free memory or disk space of the broker",
		"cause", reason)
}

func (p *Publisher) logClosed(ch *confirmChannel) {
	if err := ch.reason(); err != nil {
		p.config.Logger.Warn("the broker closed a channel; messages in flight there are published again one by one; "+
			"correct the exchange or the permission in the error", "cause", err)
	}
}

// retire takes a channel out of use.
func (p *Publisher) retire(ch *confirmChannel) {
	ch.retire()
	p.change(func() {
		if p.channel == ch {
			p.channel = nil
		}
	})
}

var _ halfmsg.Publisher = (*Publisher)(nil)
