// Package nats publishes messages to NATS JetStream and reports the stream's answer to each.
//
// The exchange of a message is the stream, and the routing key the subject. A message is done only when the stream has
// sent a PubAck. These keep the promise:
//   - connection.go: one connection, from dial to loss, with its messages in flight. Nothing of a lost connection is
//     used again.
//   - package natsconn: messages in the form of NATS, what each answer of a stream means, and why no stream took a
//     message.
//   - publishcall.go: one batch on its way.
//   - publisher.go: keeps a connection up, and reports the state.
//
// JetStream deduplicates by Nats-Msg-Id, PRODUCER/ID, within the window of the stream. So a repeat after an unknown
// outcome is stored once; the PubAck of the repeat says "duplicate", and the message is done.
package nats

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// The reasons why nothing can be published for now. The errors of Ready and the causes of Unsent wrap one of them,
// unless the caller's context is the reason.
var (
	// ErrDisconnected: there is no connection to a server.
	ErrDisconnected = errors.New("not connected to NATS")
	// ErrBlocked: the server is there, and JetStream takes no messages: it is not enabled, has no leader or no room.
	ErrBlocked = errors.New("JetStream takes no messages for now")
	// ErrStopped: Close was called.
	ErrStopped = errors.New("the publisher has stopped")
)

// Config says how to publish. URL, ConfirmTimeout and Window are required.
type Config struct {
	// URL is nats://USER:PASSWORD@HOST:PORT,HOST:PORT or tls://..., the servers of one NATS system; see
	// address.ParseNATS.
	URL string
	// ConfirmTimeout bounds Publish: a message without an answer by then is Unsure. Messages are sent in the first half,
	// so that each has at least the other half to be acknowledged.
	ConfirmTimeout time.Duration
	// Window is how many messages may be in flight at once.
	Window int
	// Logger gets a line for each change of the connection. Default slog.Default().
	Logger *slog.Logger

	// Tests choose shorter times.
	pingInterval, writeTimeout, watchInterval time.Duration
}

const (
	// pingInterval is the interval of the connection's own pings; after three intervals of silence the server is lost.
	pingInterval = 5 * time.Second
	// writeTimeout is how long one write to the network may take before the connection is closed.
	writeTimeout = 3 * time.Second
	// watchInterval is how often JetStream itself is asked whether it is available.
	watchInterval = 2 * time.Second
	// fullAfter is how long messages found no room, and none was stored, before JetStream counts as full.
	fullAfter = 5 * time.Second
	// fullPause is how long nothing is sent then, before the next message tries.
	fullPause = 2 * time.Second
)

// reconnect are the waits between attempts to connect.
var reconnect = backoff.Exponential(100*time.Millisecond, 5*time.Second)

// steady is the lifetime after which a connection counts as healthy: its end starts the waits anew.
const steady = time.Second

// endTimeout is how long Close waits for goroutines of a connection after its end.
const endTimeout = 5 * time.Second

// Publisher is a halfmsg.Publisher on one connection. It reconnects by itself, and is safe for concurrent use.
type Publisher struct {
	config  Config
	address address.NATS
	// routes has the streams that leave messages without an answer.
	routes  *publish.Routes
	streams natsconn.Streams
	// slots holds one element for each message in flight.
	slots      chan struct{}
	duplicates atomic.Int64

	cancel context.CancelFunc
	// background has every goroutine that is not part of a call of Publish; calls has one for each call.
	background, calls lifecycle.Group

	mu sync.Mutex
	// changed is closed and replaced whenever a field below changes.
	changed    chan struct{}
	connection *connection // nil: there is none
	reason     error       // why there is no connection
	blocked    error       // why JetStream takes no messages
	// full is why the account or the server has no room; the error counts until fullUntil. missed is when a message first
	// found no room since a message was stored.
	full              error
	fullUntil, missed time.Time
	stopped           bool
}

// New returns a publisher and does not wait for a server: the publisher connects in the background, and Ready reports
// the state. An error says what is not valid in the URL; it never holds the URL.
func New(config Config) (*Publisher, error) {
	config = config.complete()
	if config.ConfirmTimeout <= 0 || config.Window <= 0 {
		return nil, errors.New("nats: ConfirmTimeout and Window are required")
	}
	where, err := address.ParseNATS(config.URL)
	if err != nil {
		return nil, fmt.Errorf("URL of NATS %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{
		config:  config,
		address: where,
		// Without pauses: the send loop keeps the messages of a stalled stream back by their send.backoff.
		routes:  publish.NewRoutes(nil),
		slots:   make(chan struct{}, config.Window),
		cancel:  cancel,
		changed: make(chan struct{}),
		reason:  ErrDisconnected,
	}
	p.background.Go(func() { p.run(ctx) })
	return p, nil
}

func (c Config) complete() Config {
	c.pingInterval = cmp.Or(c.pingInterval, pingInterval)
	c.writeTimeout = cmp.Or(c.writeTimeout, writeTimeout)
	c.watchInterval = cmp.Or(c.watchInterval, watchInterval)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c
}

// Ready is nil while JetStream takes messages. Otherwise the error is ErrDisconnected, ErrBlocked or ErrStopped with
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
	case p.blocked == nil && time.Now().Before(p.fullUntil):
		return p.full
	default:
		return p.blocked
	}
}

// InFlight is how many messages have no answer yet.
func (p *Publisher) InFlight() int { return len(p.slots) }

// Duplicates is how many messages JetStream had already when they were published: repeats of copies whose
// acknowledgement was lost.
func (p *Publisher) Duplicates() int64 { return p.duplicates.Load() }

// Close refuses new messages, waits for the answers to messages in flight, and closes the connection. When the
// context ends first, the connection is closed at once: messages in flight are Unsure then, and Close returns the
// context's error. Close may be called more than once.
func (p *Publisher) Close(ctx context.Context) error {
	p.change(func() { p.stopped = true })
	err := p.calls.Wait(ctx)
	if err != nil {
		err = fmt.Errorf("close the publisher with messages in flight: %w", err)
	}
	p.cancel()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	for _, wait := range []func(context.Context) error{p.calls.Wait, p.background.Wait, p.streams.Wait} {
		if stuck := wait(ending); stuck != nil {
			err = errors.Join(err, fmt.Errorf("wait for the end of the connection: %w", stuck))
		}
	}
	return err
}

// enter counts a call of Publish, unless Close was called. The caller must call end.
func (p *Publisher) enter() (end func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return nil, ErrStopped
	}
	ended := make(chan struct{})
	p.calls.Go(func() { <-ended })
	return func() { close(ended) }, nil
}

// change changes the publisher's state and wakes the callers that wait for a change.
func (p *Publisher) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

// state gives the connection to send on and a channel that is closed at the next change. An error says why nothing can
// be sent.
func (p *Publisher) state() (*connection, <-chan struct{}, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connection, p.changed, p.obstacle()
}

// run keeps a connection up until the context ends.
func (p *Publisher) run(ctx context.Context) {
	var discovered []string
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		connected, lost := p.connect(ctx, &discovered)
		if ctx.Err() != nil {
			return
		}
		if connected && time.Since(began) > steady {
			failures = 0
		}
		p.change(func() { p.reason = fmt.Errorf("%w: %w", ErrDisconnected, lost) })
		level := slog.LevelWarn
		if failures > 0 {
			level = slog.LevelDebug // The first failure was logged; Ready reports the latest reason.
		}
		p.config.Logger.Log(ctx, level, "no connection to NATS; messages wait in the store; the publisher reconnects",
			"broker_servers", p.address.Hosts, "cause", lost)
		_ = backoff.Sleep(ctx, reconnect.Delay(failures)) // An error is the context's: the loop ends.
		failures++
	}
}

// connect uses one connection to its end and returns why the connection ended. The servers that a cluster names are
// kept for the next connection, as the servers of the URL may be gone then.
func (p *Publisher) connect(ctx context.Context, discovered *[]string) (connected bool, lost error) {
	c, err := dial(ctx, p.address, p.config, *discovered, &p.background)
	if err != nil {
		return false, err
	}
	defer c.close()
	defer func() { *discovered = c.conn.DiscoveredServers() }()
	p.routes.Reset()
	p.streams.Forget()
	blocked := c.examine(ctx)
	p.change(func() { p.connection, p.blocked, p.fullUntil, p.missed = c, blocked, time.Time{}, time.Time{} })
	defer p.change(func() { p.connection, p.blocked = nil, nil })
	p.config.Logger.InfoContext(ctx, "connected to NATS",
		"broker_server", c.conn.ConnectedAddr(), "version", c.conn.ConnectedServerVersion())
	p.logBlocked(ctx, nil, blocked)
	return true, p.watch(ctx, c)
}

// watch asks JetStream regularly whether it takes messages, until the connection or the context ends. One failure may
// be a change of the leader, so a second one follows before the publisher is not ready.
func (p *Publisher) watch(ctx context.Context, c *connection) error {
	tick := time.NewTicker(p.config.watchInterval)
	defer tick.Stop()
	failures := 0
	for {
		select {
		case <-c.ended:
			return c.loss()
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		trouble := c.examine(ctx)
		if c.conn.IsClosed() {
			continue // the end follows, with its reason
		}
		if failures++; trouble == nil {
			failures = 0
		}
		if ctx.Err() == nil && failures != 1 {
			p.setBlocked(ctx, trouble)
		}
	}
}

func (p *Publisher) setBlocked(ctx context.Context, trouble error) {
	p.mu.Lock()
	before := p.blocked
	p.mu.Unlock()
	if (before == nil) != (trouble == nil) {
		if trouble == nil {
			p.routes.ResetStalled()
		}
		p.logBlocked(ctx, before, trouble)
	}
	p.change(func() { p.blocked = trouble })
}

// noteRoom learns from an answer whether JetStream has room. The account's state does not tell: it has no limits of the
// server. Without room nothing is sent for a while: the messages wait in the store, and not here.
func (p *Publisher) noteRoom(fate natsconn.Fate, cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	switch {
	case fate == natsconn.Stored:
		p.fullUntil, p.missed = time.Time{}, time.Time{}
	case fate != natsconn.Unavailable:
	case p.missed.IsZero():
		p.missed = now
	case now.Sub(p.missed) >= fullAfter:
		if p.fullUntil.IsZero() {
			p.config.Logger.Warn("no stream takes messages; messages wait in the store; "+
				"look at the room of the account and of the servers", "cause", cause)
		}
		p.full, p.fullUntil = fmt.Errorf("%w: %w", ErrBlocked, cause), now.Add(fullPause)
	}
}

func (p *Publisher) logBlocked(ctx context.Context, before, now error) {
	switch {
	case now != nil:
		p.config.Logger.WarnContext(ctx, "JetStream takes no messages; messages wait in the store; "+
			"look at the servers' JetStream and at the permissions of the user", "cause", now)
	case before != nil:
		p.config.Logger.InfoContext(ctx, "JetStream takes messages again; publishing goes on")
	}
}

var _ halfmsg.Publisher = (*Publisher)(nil)
