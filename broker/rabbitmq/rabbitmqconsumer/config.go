package rabbitmqconsumer

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/logtext"
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
	// Queue is the queue's name. Run waits until the queue exists, unless Declare creates the queue.
	Queue string
	// Declare creates the queue, its bindings and its dead-letter queue at each connect. Nil: the queue is declared
	// elsewhere.
	Declare *Declare
	// Prefetch is how many messages the broker hands out before the first is acknowledged, with messages that wait for
	// a retry in this process. Default: 20.
	Prefetch int
	// Concurrency is how many handlers run at once, at most Prefetch. With 1, the default, messages are handled in the
	// queue's order, as long as none fails.
	Concurrency int
	// Dedup remembers which messages were handled and drops their copies. Nil: the handler sees every copy.
	Dedup dedup.Store
	// Retry lists the pauses in this process before a failed message goes back to the queue, without Declare.Delays:
	// the first entry after the first failure, and so on; the last entry repeats, and all have jitter. Only a quorum
	// queue counts failures; elsewhere the second entry is the last. A busy message, or a message that the broker
	// cannot take into a delay queue, waits as long and is handled again without going back. During the pause the
	// message takes up one of Prefetch. Default: 1s, 5s, 30s.
	Retry []time.Duration
	// StopTimeout is how long running handlers may take after Run's context has ended, before their own context ends.
	// Default: 20 s.
	StopTimeout time.Duration
	// Consuming is called each time that consuming begins: at first, and after each reconnect. Consuming must not
	// block. Nil: no call.
	Consuming func()
	// Observer receives the result of every delivery and the depth of the queue, for metrics. Nil: none.
	Observer consumer.Observer
	// DepthInterval is how often the depth of the queue is reported to Observer, and what was deleted of Declare is made
	// again. Default: 15 s.
	DepthInterval time.Duration
	// Logger gets the events of the connection and failed messages. Default: slog.Default().
	Logger *slog.Logger
	// Language is the language of the fixed log texts: "en", the default, or "zh", Chinese.
	Language string
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
		c.Observer = adapter.Unobserved{}
	}
	c.Name = cmp.Or(c.Name, c.Queue)
	c.Logger = c.Logger.With(slog.String("consumer", c.Name), slog.String("queue", c.Queue))
	return c, c.check()
}

func (c Config) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("rabbitmqconsumer.Config: "+format, args...))
	}
	for i, url := range c.urls() {
		// The library's own error may quote the password.
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
			wrong("Retry holds %v; a failed message must not be handled again at once", d)
		}
	}
	if c.StopTimeout < 0 {
		wrong("StopTimeout is negative: %v", c.StopTimeout)
	}
	if c.DepthInterval < 0 {
		wrong("DepthInterval is negative: %v", c.DepthInterval)
	}
	if err := c.language().Check(); err != nil {
		wrong("Language: %w", err)
	}
	if c.Declare != nil {
		errs = append(errs, c.Declare.check())
	}
	return errors.Join(errs...)
}

func (c Config) language() logtext.Language { return logtext.Language(c.Language) }

func (c Config) urls() []string {
	urls := strings.Split(c.URL, ",")
	for i := range urls {
		urls[i] = strings.TrimSpace(urls[i])
	}
	return urls
}
