package rabbitmqconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/logtext"
)

// The delays before a reconnect: short at first, as most breaks are short, and capped, so that a recovered broker is
// used soon.
var reconnect = backoff.Exponential(200*time.Millisecond, 15*time.Second)

// Consumer receives the messages of one queue.
type Consumer struct {
	config Config
}

// New checks the configuration. New makes no connection.
func New(config Config) (*Consumer, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Consumer{config: config}, nil
}

// Run hands the queue's messages to h until ctx ends, and reconnects whenever the connection breaks. After the end of
// ctx, Run takes no further message, lets the handlers finish, acknowledges, and returns nil; messages that were
// received but not begun stay in the queue. Run returns an error when handlers outlast Config.StopTimeout, and when
// Config.Declare contradicts a queue or exchange on the broker. Run may be called several times, also at once: each
// call is a consumer.
func (c *Consumer) Run(ctx context.Context, h consumer.Handler) error {
	work, cancel := context.WithCancel(logtext.With(context.WithoutCancel(ctx), c.config.language()))
	defer cancel()
	over, end := context.WithCancel(context.Background())
	r := &run{
		Config: c.config, handler: adapter.Around(h, c.config.Dedup, c.config.Logger), retry: backoff.Steps(c.config.Retry),
		stopping: ctx, work: work, cancelWork: cancel, slots: make(chan struct{}, c.config.Concurrency),
		poster: poster{connect: func(ctx context.Context) (*amqpconn.Conn, error) {
			if over.Err() != nil {
				return nil, errOver
			}
			return c.config.dialAny(ctx, "retries")
		}},
	}
	defer r.poster.close()
	defer end() // before close: a handler that outlasts Run opens no connection, which no call would end
	err := r.serve()
	return errors.Join(err, r.finish())
}

// errOver: the message of a handler that outlasted Run is in its queue again.
var errOver = errors.New("the consumer has stopped")

// run is the state of a call of Run.
type run struct {
	Config
	handler consumer.Handler
	retry   backoff.Steps
	// stopping ends when no further message is to be begun; work, the handlers' context, ends some time after.
	stopping   context.Context
	work       context.Context
	cancelWork context.CancelFunc
	// slots bounds the handlers over all connections: handlers of a lost connection go on.
	slots    chan struct{}
	handlers lifecycle.Group
	poster   poster
	// deliveryLimit is the queue's delivery limit, as far as the broker reports a limit.
	deliveryLimit atomic.Int64
	// unfinished remembers the outcome of finish.
	unfinished error
	finished   bool
}

// serve runs sessions in turn until the run stops, or can never work.
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
			slog.Int64("retry_in_ms", delay.Milliseconds()), slog.Any("cause", err))
		_ = backoff.Sleep(r.stopping, delay)
	}
	return nil
}

func (r *run) stopped() bool { return r.stopping.Err() != nil }

// contradicts reports a queue or exchange that exists with other properties, found before consuming began. Waiting
// does not change this.
func contradicts(err error) bool {
	var refused *amqp.Error
	return errors.As(err, &refused) && refused.Code == amqp.PreconditionFailed
}

// finish waits until no handler runs. After StopTimeout the handlers' context ends. A second call of finish returns
// the same error.
func (r *run) finish() error {
	if r.finished {
		return r.unfinished
	}
	r.finished = true
	if endsWithin(&r.handlers, r.StopTimeout) {
		return nil
	}
	r.cancelWork()
	r.unfinished = fmt.Errorf(
		"handlers took longer than the %v of StopTimeout; their messages will be redelivered", r.StopTimeout)
	endsWithin(&r.handlers, adapter.CancelGrace)
	return r.unfinished
}

// endsWithin waits for the group's goroutines, and reports whether they ended in time.
func endsWithin(g *lifecycle.Group, d time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	return g.Wait(ctx) == nil
}
