package consumer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/internal/address"
)

// Config says which queue is consumed, and how. URL and Queue must be given.
type Config struct {
	// URL is amqp://USER:PASSWORD@HOST:PORT/VHOST or amqps://...; several nodes of a cluster are separated by commas and
	// tried in turn.
	URL string
	// TLS is used for amqps; nil is Go's default.
	TLS *tls.Config
	// Name is the consumer's, in log lines. Default: the queue's.
	Name string
	// Queue is the queue's name. Run waits for one that does not exist, unless Declare makes it.
	Queue string
	// Declare makes the queue and what belongs to it at each connect. Nil: it is somebody else's to make.
	Declare *Declare
	// Prefetch is how many messages the broker hands out before the first is acknowledged, those that wait for a retry
	// included. Default: 20.
	Prefetch int
	// Concurrency is how many handlers run at once, at most Prefetch. With 1, the default, messages are handled in the
	// queue's order, as long as none fails.
	Concurrency int
	// Dedup remembers which messages were handled and drops their copies. Nil: the handler sees every copy.
	Dedup dedup.Store
	// Retry is how long a message whose handler failed waits in this process before it goes back to the queue, where it does
	// not wait on the broker (Declare.Delays): the first entry after its first failure, and so on; the last repeats, and all
	// have jitter. Only a quorum queue counts; elsewhere the second entry is the last. A message that is busy, or that the
	// broker has no place for, waits as long and is handled again without going back. While it waits it takes up one of
	// Prefetch. Default: 1s, 5s, 30s.
	Retry []time.Duration
	// StopTimeout is how long the messages in hand may take after Run's context has ended, before their own context
	// ends. Default: 20 s.
	StopTimeout time.Duration
	// Consuming is called each time that consuming begins: at first, and after each reconnect. It must not block. Nil:
	// nobody is told.
	Consuming func()
	// Observer is told of every delivery and how deep the queue is, for metrics. Nil: nobody is.
	Observer Observer
	// DepthInterval is how often Observer is told how deep the queue is. Default: 15 s.
	DepthInterval time.Duration
	// Logger gets what happens to the connection and which messages failed. Default: slog.Default().
	Logger *slog.Logger
}

func (c Config) withDefaults() (Config, error) {
	if c.Prefetch == 0 {
		c.Prefetch = 20
	}
	if c.Concurrency == 0 {
		c.Concurrency = 1
	}
	if len(c.Retry) == 0 {
		c.Retry = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 20 * time.Second
	}
	if c.DepthInterval == 0 {
		c.DepthInterval = 15 * time.Second
	}
	if c.Consuming == nil {
		c.Consuming = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	c.Name = or(c.Name, c.Queue)
	c.Logger = c.Logger.With(slog.String("consumer", c.Name), slog.String("queue", c.Queue))
	return c, c.check()
}

func (c Config) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("consumer.Config: "+format, args...))
	}
	for i, url := range c.urls() {
		// What the library says of a URL may quote the password.
		if _, err := address.ParseAMQP(url); err != nil {
			wrong("URL number %d %w", i+1, err)
		}
	}
	if c.Queue == "" {
		wrong("Queue is missing; give the name of the queue to consume")
	}
	if c.Prefetch < 1 || c.Prefetch > 65535 {
		wrong("Prefetch is %d; it must be between 1 and 65535", c.Prefetch)
	}
	if c.Concurrency < 1 || c.Concurrency > c.Prefetch {
		wrong("Concurrency is %d; it must be between 1 and Prefetch, which is %d", c.Concurrency, c.Prefetch)
	}
	for _, d := range c.Retry {
		if d <= 0 {
			wrong("Retry holds %v; a message that failed must not come again at once", d)
		}
	}
	if c.StopTimeout < 0 {
		wrong("StopTimeout is negative: %v", c.StopTimeout)
	}
	if c.DepthInterval < 0 {
		wrong("DepthInterval is negative: %v", c.DepthInterval)
	}
	if c.Declare != nil {
		errs = append(errs, c.Declare.check())
	}
	return errors.Join(errs...)
}

func (c Config) urls() []string {
	urls := strings.Split(c.URL, ",")
	for i := range urls {
		urls[i] = strings.TrimSpace(urls[i])
	}
	return urls
}

// Observer is told what a consumer does. Its methods are called concurrently and must not block.
type Observer interface {
	// Begun: a message of the queue was handed to the handler.
	Begun(queue string)
	// Ended: the broker was told what became of it. The handler took that long.
	Ended(queue string, result Result, took time.Duration)
	// Depth: so many messages wait in the queue; those that a consumer has in hand are not among them.
	Depth(queue string, messages int)
	// DeadLetters: so many are among the queue's dead letters, where Declare says which those are.
	DeadLetters(queue string, messages int)
}

type unobserved struct{}

func (unobserved) Begun(string)                        {}
func (unobserved) Ended(string, Result, time.Duration) {}
func (unobserved) Depth(string, int)                   {}
func (unobserved) DeadLetters(string, int)             {}
