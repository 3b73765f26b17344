// Package rabbitmq publishes messages to RabbitMQ and tells of each what the broker said.
//
// A message is done only when the broker has acknowledged it and has not returned it. These make that hold:
//   - lane.go: a channel in confirm mode with what is in flight on it. It matches returns and confirmations.
//   - gate.go: which exchanges the broker is known to take messages for. The first message to an exchange goes through
//     a channel of its own, so that one the broker will not take closes nobody else's.
//   - link.go: one connection, from dial to loss. Nothing of a lost one is used again.
//   - silences.go: the queues that do not confirm, so that their messages take no places from others.
//   - publisher.go: keeps a link and a lane up, and says so.
package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/address"
	"github.com/msghandler/msghandler/internal/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/versions"
)

// Why nothing can be published for now. The errors of Ready and the causes of Unsent wrap one of them, if the caller's
// context is not the reason.
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
	// one is needed. A heartbeat in a URL wins over Heartbeat.
	URLs []string
	// ConfirmTimeout bounds Publish: what has no answer by then is Unsure. Messages are sent in the first half of it, so
	// that each has at least the other half to be acknowledged. Default 10 s.
	ConfirmTimeout time.Duration
	// Window is how many messages may be on their way at once. Default 1000.
	Window int
	// Heartbeat is the interval of heartbeats, at least 1 s; a peer that is silent for three of them is gone. Default 5 s.
	Heartbeat time.Duration
	// WriteTimeout is how long one write to the network may take before the connection is given up. Default 3 s.
	WriteTimeout time.Duration
	// Logger gets a line for each change of the connection. Default slog.Default().
	Logger *slog.Logger
}

// reconnect are the waits between attempts to connect.
var reconnect = backoff.Exponential(100*time.Millisecond, 5*time.Second)

// reopen are the waits before a channel is opened again, the more of them were closed at once the longer.
var reopen = backoff.Exponential(time.Millisecond, time.Second)

// steady is how long a connection or channel must have lived for its end to be no sign of the next one's.
const steady = time.Second

// Publisher is a halfmsg.Publisher on one connection, which it keeps up by itself. It is safe for concurrent use.
type Publisher struct {
	config   Config
	nodes    []address.AMQP
	gate     *gate
	silences silences
	// slots holds one element for each message on its way.
	slots chan struct{}
	// trials holds the idle lanes for first messages; nil is one that is to be opened.
	trials chan *lane

	cancel   context.CancelFunc
	finished chan struct{}
	calls    sync.WaitGroup

	mu sync.Mutex
	// changed is closed and replaced whenever one of the following changes.
	changed chan struct{}
	link    *link // nil: there is none
	lane    *lane // nil: it is being opened
	reason  error // why there is no link
	blocked error // set during an alarm of the broker
	stopped bool
}

// New returns a publisher and does not wait for the broker: it connects in the background, and Ready tells. An error
// says which URL cannot be one; it never holds the URL.
func New(config Config) (*Publisher, error) {
	config = config.complete()
	nodes, err := parseNodes(config.URLs)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{
		config:   config,
		nodes:    nodes,
		gate:     newGate(),
		silences: silences{patience: config.ConfirmTimeout},
		slots:    make(chan struct{}, config.Window),
		trials:   make(chan *lane, trialLanes),
		cancel:   cancel,
		finished: make(chan struct{}),
		changed:  make(chan struct{}),
		reason:   ErrDisconnected,
	}
	for range trialLanes {
		p.trials <- nil
	}
	go p.run(ctx)
	return p, nil
}

func (c Config) complete() Config {
	setDefault(&c.ConfirmTimeout, 10*time.Second)
	setDefault(&c.Window, 1000)
	setDefault(&c.Heartbeat, 5*time.Second)
	setDefault(&c.WriteTimeout, 3*time.Second)
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func setDefault[T comparable](value *T, standard T) {
	var zero T
	if *value == zero {
		*value = standard
	}
}

// Ready is nil while the broker takes messages. Otherwise it is ErrDisconnected, ErrBlocked or ErrStopped with the
// cause.
func (p *Publisher) Ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.obstacle()
}

// obstacle says what stands in the way; p.mu is held.
func (p *Publisher) obstacle() error {
	switch {
	case p.stopped:
		return ErrStopped
	case p.link == nil:
		return p.reason
	default:
		return p.blocked
	}
}

// OnTheirWay is how many messages the broker has yet to answer for.
func (p *Publisher) OnTheirWay() int { return len(p.slots) }

// Close refuses new messages, waits for the answers to those on their way, and closes the connection. When the context
// ends first the connection is closed at once: what is on its way is Unsure then, and the context's error is returned.
// It may be called more than once.
func (p *Publisher) Close(ctx context.Context) error {
	p.change(func() { p.stopped = true })
	answered := make(chan struct{})
	go func() {
		p.calls.Wait()
		close(answered)
	}()
	var err error
	select {
	case <-answered:
	case <-ctx.Done():
		err = fmt.Errorf("close the publisher with messages on their way: %w", ctx.Err())
	}
	p.cancel()
	<-p.finished
	<-answered
	return err
}

// enter counts a call of Publish in, unless Close was called.
func (p *Publisher) enter() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stopped {
		return ErrStopped
	}
	p.calls.Add(1)
	return nil
}

// change makes a change to the publisher's state and wakes who waits for one.
func (p *Publisher) change(do func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do()
	close(p.changed)
	p.changed = make(chan struct{})
}

// run keeps a link up until the context ends.
func (p *Publisher) run(ctx context.Context) {
	defer close(p.finished)
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
			level = slog.LevelDebug // It is known already; Ready tells the latest reason.
		}
		p.config.Logger.Log(ctx, level, "no connection to the broker", "broker", node.Host, "error", lost)
		_ = backoff.Sleep(ctx, reconnect.Delay(failures)) // Its error is the context's, which the loop looks at.
		failures++
	}
}

// connect uses one connection to its end and returns why it ended.
func (p *Publisher) connect(ctx context.Context, node address.AMQP) error {
	k, err := dial(ctx, node, p.config)
	if err != nil {
		return err
	}
	defer k.close()
	p.gate.reset() // Another node, or the same after a restart, may know other exchanges and permissions.
	p.silences.reset()
	p.change(func() { p.link = k })
	defer p.change(func() { p.link, p.lane, p.blocked = nil, nil, nil })
	p.config.Logger.InfoContext(ctx, "connected to the broker", "broker", node.Host)
	if about := k.connection.Properties; ageOf(about) == TooOld {
		p.config.Logger.WarnContext(ctx, "the broker's version is not supported; msghandler is not tested with it; upgrade the broker",
			"broker", node.Host, "server", serverOf(about), "oldest", versions.RabbitMQ.Oldest.String())
	}
	return p.serve(ctx, k)
}

// serve keeps a lane open on the link until the link or the context ends, and watches for alarms.
func (p *Publisher) serve(ctx context.Context, k *link) error {
	blocked := k.blocked
	var l *lane
	var began time.Time
	failures := 0
	for {
		if l == nil && p.unblocked() {
			var err error
			if l, err = k.open(p.config.Window, p.gate.distrust); err != nil {
				return err
			}
			began = time.Now()
			p.change(func() { p.lane = l })
		}
		select {
		case b, open := <-blocked:
			if !open {
				blocked = nil // The link is ending.
				continue
			}
			p.setBlocked(b.Active, b.Reason)
		case <-left(l):
			p.retire(l)
			if k.connection.IsClosed() {
				return k.reason()
			}
			p.logClosed(l)
			l = nil
			if failures++; time.Since(began) > steady {
				failures = 0
			}
			_ = backoff.Sleep(ctx, reopen.Delay(failures)) // Its error is the context's, which comes next.
		case <-k.done:
			return k.reason()
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// left tells when the lane takes no more messages.
func left(l *lane) <-chan struct{} {
	if l == nil {
		return nil
	}
	return l.retired
}

func (p *Publisher) unblocked() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.blocked == nil
}

func (p *Publisher) setBlocked(active bool, reason string) {
	if !active {
		p.silences.reset() // it was not the queues that did not confirm
		p.change(func() { p.blocked = nil })
		p.config.Logger.Info("the broker takes messages again")
		return
	}
	p.change(func() { p.blocked = fmt.Errorf("%w: %s", ErrBlocked, reason) })
	p.config.Logger.Warn("the broker takes no messages for now", "reason", reason)
}

func (p *Publisher) logClosed(l *lane) {
	if err := l.reason(); err != nil {
		p.config.Logger.Warn("the broker closed a channel; what was on its way there is published again one by one",
			"error", err)
	}
}

// retire takes the lane out of use.
func (p *Publisher) retire(l *lane) {
	l.retire()
	p.change(func() {
		if p.lane == l {
			p.lane = nil
		}
	})
}

var _ halfmsg.Publisher = (*Publisher)(nil)
