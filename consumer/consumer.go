package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/amqpconn"
	"github.com/msghandler/msghandler/internal/backoff"
)

// Reconnecting: quick at first, as most breaks are short, and never so slow that a recovered broker waits long.
var reconnect = backoff.Exponential(200*time.Millisecond, 15*time.Second)

// lastWord is how long handlers get to notice that their context has ended.
const lastWord = 2 * time.Second

// Consumer receives the messages of one queue.
type Consumer struct {
	config Config
}

// New checks the configuration. It connects to nothing.
func New(config Config) (*Consumer, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Consumer{config: config}, nil
}

// Run hands the queue's messages to h until ctx ends, and connects again whenever the connection breaks. Then it takes
// no further message, lets the handlers finish, acknowledges, and returns nil; messages that were received but not
// begun stay in the queue. It returns an error when handlers outlast Config.StopTimeout, and when Config.Declare
// contradicts what is on the broker. It may be called several times, also at once: each call is a consumer of its own.
func (c *Consumer) Run(ctx context.Context, h Handler) error {
	around := []Middleware{Recover()}
	if c.config.Dedup != nil {
		around = []Middleware{Recover(), Deduplicate(c.config.Dedup, c.config.Logger), Recover()}
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	r := &run{
		Config: c.config, handler: Chain(h, around...), retry: backoff.Steps(c.config.Retry),
		stopping: ctx, work: work, cancelWork: cancel, slots: make(chan struct{}, c.config.Concurrency),
		poster: poster{connect: func(ctx context.Context) (*amqpconn.Conn, error) {
			return c.config.dialAny(ctx, "retries")
		}},
	}
	defer r.poster.close()
	err := r.serve()
	return errors.Join(err, r.finish())
}

// run is one call of Run.
type run struct {
	Config
	handler Handler
	retry   backoff.Steps
	// stopping ends when no further message is to be begun; work, the handlers' context, ends some time after.
	stopping   context.Context
	work       context.Context
	cancelWork context.CancelFunc
	// slots bounds the handlers over all connections: those of a lost one go on.
	slots  chan struct{}
	inHand sync.WaitGroup
	poster poster
	// deliveryLimit is that of the queue, as far as the broker tells it.
	deliveryLimit atomic.Int64
	// unfinished remembers the outcome of finish.
	unfinished error
	finished   bool
}

// serve runs one session after the other until the run stops, or can never work.
func (r *run) serve() error {
	urls := r.urls()
	for node, failures := 0, 0; !r.stopped(); node++ {
		served, err := r.session(urls[node%len(urls)])
		if r.stopped() {
			break
		}
		if !served && contradicts(err) {
			return fmt.Errorf("queue %q: %w", r.Queue, err)
		}
		if served {
			failures = 0
		}
		delay := reconnect.Delay(failures)
		failures++
		r.Logger.LogAttrs(r.stopping, slog.LevelWarn, "not consuming, trying again",
			slog.Duration("in", delay), slog.Any("error", err))
		_ = backoff.Sleep(r.stopping, delay)
	}
	return nil
}

func (r *run) stopped() bool { return r.stopping.Err() != nil }

// contradicts: what exists on the broker was declared otherwise, before consuming began. Waiting does not change that.
func contradicts(err error) bool {
	var refused *amqp.Error
	return errors.As(err, &refused) && refused.Code == amqp.PreconditionFailed
}

// finish waits until nothing is in hand. Handlers that are not done after StopTimeout lose their context. It may be
// called again, and then tells the same.
func (r *run) finish() error {
	if r.finished {
		return r.unfinished
	}
	r.finished = true
	done := make(chan struct{})
	go func() {
		r.inHand.Wait()
		close(done)
	}()
	if within(done, r.StopTimeout) {
		return nil
	}
	r.cancelWork()
	r.unfinished = fmt.Errorf("handlers took longer than the %v of StopTimeout; their messages come again", r.StopTimeout)
	within(done, lastWord)
	return r.unfinished
}

// within waits for done, and says whether it came in time.
func within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}
