package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// The reasons why nothing can be published for now. The errors of Ready and the causes of Unsent wrap one of them,
// unless the caller's context or a stalled route is the reason.
var (
	// ErrDisconnected: there is no connection to the broker.
	ErrDisconnected = errors.New("not connected to the broker")
	// ErrBlocked: the broker is there and takes no messages: an alarm, no room, too few replicas.
	ErrBlocked = errors.New("the broker takes no messages for now")
	// ErrAccessRefused: the broker answers and refuses the login, or the place that the login is for. It comes with
	// ErrDisconnected.
	ErrAccessRefused = errors.New("the broker refuses access")
	// ErrHandshake: the broker was reached, and the connection ended before the broker had opened it. It comes with
	// ErrDisconnected.
	ErrHandshake = errors.New("the broker did not open the connection")
	// ErrStopped: Close was called.
	ErrStopped = errors.New("the publisher has stopped")
)

// reconnect are the waits between attempts to connect.
var reconnect = backoff.Exponential(100*time.Millisecond, 5*time.Second)

const (
	// steady is the lifetime after which a connection counts as healthy: its end starts the waits anew.
	steady = time.Second
	// endTimeout is how long Close waits for goroutines of a connection after its end.
	endTimeout = 5 * time.Second
	// fullAfter is how long messages found no room, and none was stored, before the broker counts as full.
	fullAfter = 5 * time.Second
	// fullPause is how long nothing is sent then, before the next message tries.
	fullPause = 2 * time.Second
	// awaitEvery is how often Await looks again, as nothing tells of the end of fullPause.
	awaitEvery = 100 * time.Millisecond
)

// Life is what the publishers of all brokers have in common, from New to Close: a connection that is replaced when it
// is lost, the state that Ready reports, the messages in flight, and the calls of Publish. C is what messages are sent
// on, such as a connection; its zero value is none. The zero value of a Life is not usable; see NewLife.
type Life[C comparable] struct {
	Config Config
	Routes *Routes
	// Background has the goroutines that are not part of a call of Publish. They end soon after the connection.
	Background lifecycle.Group

	// slots holds one element for each message in flight.
	slots  chan struct{}
	calls  lifecycle.Group
	cancel context.CancelFunc
	// short is set while missed is.
	short atomic.Bool

	mu sync.Mutex
	// changed is closed and replaced whenever a field below changes.
	changed chan struct{}
	current C
	// connectedAt is when the present connection, or the last one, was made.
	connectedAt time.Time
	reason      error // why there is no connection
	blocked     error // why the broker takes nothing, by its own words
	// full is why there is no room; the error counts until fullUntil. missed is when a message first found no room since
	// a message was stored.
	full              error
	fullUntil, missed time.Time
	stopped           bool
}

// NewLife returns the life of a publisher that is not connected yet.
func NewLife[C comparable](config Config, routes RoutesConfig) *Life[C] {
	config = config.Complete()
	routes.Pauses = config.ProbePauses
	return &Life[C]{
		Config: config, Routes: NewRoutes(routes), slots: make(chan struct{}, config.Window),
		changed: make(chan struct{}), reason: ErrDisconnected,
	}
}

// Start keeps a connection up until Close. connect uses one connection to its end, calls Connected and Disconnected
// meanwhile, and returns the broker's address and why the connection has ended.
func (l *Life[C]) Start(connect func(context.Context) (broker string, lost error)) {
	ctx, cancel := context.WithCancel(context.Background()) //nolint:gosec // Close calls it
	l.cancel = cancel
	l.Background.Go(func() { l.run(ctx, connect) })
}

func (l *Life[C]) run(ctx context.Context, connect func(context.Context) (string, error)) {
	for failures := 0; ctx.Err() == nil; failures++ {
		began := time.Now()
		var broker string
		var lost error
		if failure := lifecycle.Recovered(func() { broker, lost = connect(ctx) }); failure != nil {
			lost = failure
			l.Config.Logger.ErrorContext(ctx, "the connection to the broker panicked; the publisher reconnects",
				"cause", failure, "stack", string(failure.Stack))
		}
		if ctx.Err() != nil {
			return
		}
		if l.lose(lost, began) {
			failures = 0
		}
		level := slog.LevelWarn
		if failures > 0 {
			level = slog.LevelDebug // The first failure was logged; Ready reports the latest reason.
		}
		l.Config.Logger.Log(ctx, level, "no connection to the broker; messages wait; the publisher reconnects",
			"broker", broker, "cause", lost)
		_ = backoff.Sleep(ctx, reconnect.Delay(failures)) // An error is the context's: the loop ends.
	}
}

// lose records why there is no connection, and reports whether the connection was healthy.
func (l *Life[C]) lose(why error, began time.Time) (healthy bool) {
	l.change(func() {
		l.reason = fmt.Errorf("%w: %w", ErrDisconnected, why)
		healthy = l.connectedAt.After(began) && time.Since(l.connectedAt) > steady
	})
	return healthy
}

// Connected records that there is a connection. What an earlier one had taught about routes and room is forgotten. The
// connection to send on may follow later, by Use.
func (l *Life[C]) Connected(ctx context.Context, broker string, on C) {
	l.Routes.Reset()
	l.change(func() {
		l.current, l.reason, l.connectedAt = on, nil, time.Now()
		l.noteRoom(time.Time{})
	})
	l.Config.Logger.InfoContext(ctx, "connected to the broker", "broker", broker)
}

// Disconnected records that nothing can be sent any more.
func (l *Life[C]) Disconnected() {
	l.change(func() {
		var none C
		l.current, l.reason, l.blocked = none, ErrDisconnected, nil
	})
}

// Use has messages sent on another connection.
func (l *Life[C]) Use(on C) { l.change(func() { l.current = on }) }

// Retire has no more messages sent on a connection. The next ones wait for Use.
func (l *Life[C]) Retire(on C) {
	l.change(func() {
		if l.current == on {
			var none C
			l.current = none
		}
	})
}

// Block records whether the broker says that it takes no messages. advice says what to do about it. One goroutine calls
// Block, the one of connect.
func (l *Life[C]) Block(why error, advice string) {
	l.mu.Lock()
	before := l.blocked
	l.mu.Unlock()
	switch {
	case before == nil && why != nil:
		l.Config.Logger.Warn("the broker takes no messages; messages wait; "+advice, "cause", why)
	case before != nil && why == nil:
		l.Routes.ResetStalled() // the broker kept the answers back, and not a queue
		l.Config.Logger.Info("the broker takes messages again; publishing goes on")
	}
	l.change(func() { l.blocked = why })
}

// Stored records that the broker has stored a message, so there is room.
func (l *Life[C]) Stored() {
	if l.short.Load() {
		l.change(func() { l.noteRoom(time.Time{}) })
	}
}

// NoRoom records that a message found no room, or no replicas. While no other message is stored either, nothing is sent
// for a while: the messages wait where they come from, and not here. advice says what to do about it.
func (l *Life[C]) NoRoom(why error, advice string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case l.missed.IsZero():
		l.noteRoom(now)
	case now.Sub(l.missed) >= fullAfter:
		if l.fullUntil.IsZero() {
			l.Config.Logger.Warn("no message is stored; messages wait; "+advice, "cause", why)
		}
		l.full, l.fullUntil = fmt.Errorf("%w: %w", ErrBlocked, why), now.Add(fullPause)
	}
}

// noteRoom sets since when there is no room; l.mu is held.
func (l *Life[C]) noteRoom(missed time.Time) {
	l.missed, l.fullUntil = missed, time.Time{}
	l.short.Store(!missed.IsZero())
}

// change changes the state and wakes the callers that wait for a change.
func (l *Life[C]) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	close(l.changed)
	l.changed = make(chan struct{})
}

// State gives what to send on, the zero value while that is being opened, and a channel that is closed at the next
// change. An error says why nothing can be sent.
func (l *Life[C]) State() (on C, changed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.current, l.changed, l.obstacle()
}

// obstacle says why nothing can be sent now; l.mu is held.
func (l *Life[C]) obstacle() error {
	switch {
	case l.stopped:
		return ErrStopped
	case l.reason != nil:
		return l.reason
	case l.blocked != nil:
		return l.blocked
	case !l.fullUntil.IsZero() && time.Now().Before(l.fullUntil):
		return l.full
	default:
		return nil
	}
}

// Ready is nil while the broker takes messages. Otherwise the error is ErrDisconnected, ErrBlocked or ErrStopped with
// the cause.
func (l *Life[C]) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.obstacle()
}

// Await waits until Ready is nil, or until the context ends, and returns what Ready returns then.
func (l *Life[C]) Await(ctx context.Context) error {
	for {
		_, changed, err := l.State()
		if err == nil || errors.Is(err, ErrStopped) {
			return err
		}
		select {
		case <-changed:
		case <-time.After(awaitEvery):
		case <-ctx.Done():
			return l.Ready()
		}
	}
}

// InFlight is how many messages the broker has yet to answer.
func (l *Life[C]) InFlight() int { return len(l.slots) }

// Close refuses new messages, waits for the answers to messages in flight, and closes the connection. When the
// context ends first, the connection is closed at once: messages in flight are Unsure then, and Close returns the
// context's error. Close may be called more than once.
func (l *Life[C]) Close(ctx context.Context) error {
	l.change(func() { l.stopped = true })
	err := l.calls.Wait(ctx)
	if err != nil {
		err = fmt.Errorf("close the publisher with messages in flight: %w", err)
	}
	l.cancel()
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTimeout)
	defer cancel()
	for _, group := range []*lifecycle.Group{&l.calls, &l.Background} { // without a connection each call has its outcomes
		if stuck := group.Wait(ending); stuck != nil {
			err = errors.Join(err, fmt.Errorf("wait for the end of the connection: %w", stuck))
		}
	}
	return err
}

// enter counts a call of Publish, unless Close was called. The caller must end the call.
func (l *Life[C]) enter() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return ErrStopped
	}
	l.calls.Begin()
	return nil
}
