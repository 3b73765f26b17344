package natsconsumer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/logtext"
)

// Config says which stream is consumed, and how. URL, Stream and Name must be given.
type Config struct {
	// URL is nats://USER:PASSWORD@HOST:PORT,HOST:PORT or tls://..., with the options of a publisher.
	URL string
	// TLS is used for addresses with TLS; nil is what the URL says.
	TLS *tls.Config
	// Stream is the stream's name. Run waits until the stream exists.
	Stream string
	// Name is the durable consumer on the stream, which Run creates. Processes with the same name share the messages.
	Name string
	// Subjects are the subjects that are consumed. None: all of the stream.
	Subjects []string
	// DeadLetterStream gets the copies of messages that cannot be handled, as the subject STREAM.SUBJECT: the stream DEAD
	// has the subjects DEAD.>. Empty: failed messages are retried for ever, and rejected messages are dropped.
	DeadLetterStream string
	// MaxDeliveries is how many deliveries make a message a dead letter when the last of them fails. JetStream counts
	// deliveries and no failures. A delivery that this process saw end without a failure does not count: before a stop,
	// on a lost connection. A busy message, and a message whose handler cannot work for now, wait in this process and use
	// no delivery. Deliveries to other processes and before a restart count in any case, so the
	// first failure that a process sees is not the last one, unless MaxDeliveries is 1. A message that succeeds is
	// acknowledged, however often it was delivered. For a message that was delivered more than four times as often, and
	// more than 20 times, each process notes in the metadata of the durable consumer that it begins. When five processes
	// have begun it and told nothing, it ends the processes that handle it: it becomes a dead letter without its handler.
	// MaxDeliveries needs DeadLetterStream. Default: 5 with DeadLetterStream.
	MaxDeliveries int
	// Prefetch is how many messages this process has at once. Up to as many busy messages wait here beside them, and up
	// to 1,000 failed messages on the server.
	// Default: 20.
	Prefetch int
	// Concurrency is how many handlers run at once, at most Prefetch. With 1, the default, messages are handled in the
	// stream's order, as long as none fails.
	Concurrency int
	// AckWait is after how long the server delivers a message again whose consumer is gone. A running handler renews
	// the time. Default: 30 s.
	AckWait time.Duration
	// Dedup remembers which messages were handled and drops their copies. Nil: the handler sees every copy.
	Dedup dedup.Store
	// Retry lists the delays before a failed message is delivered again; the last repeats. Default: 1s, 5s, 30s.
	Retry []time.Duration
	// StopTimeout is how long running handlers may take after Run's context has ended. Default: 20 s.
	StopTimeout time.Duration
	// Consuming is called each time that consuming begins. Nil: no call.
	Consuming func()
	// Observer receives the result of every delivery, for metrics; the queue is the stream. Observer also receives how
	// many messages of the durable consumer are not acknowledged, as the depth of the stream, and how many messages
	// DeadLetterStream has, by the name of that stream. Nil: none.
	Observer consumer.Observer
	// DepthInterval is how often the depths are reported to Observer, and a MaxDeliver that was given to the durable
	// consumer is taken back. Default: 15 s.
	DepthInterval time.Duration
	// Logger gets the events of the connection and failed messages. Default: slog.Default().
	Logger *slog.Logger
	// Language is the language of the fixed log texts: "en", the default, or "zh", Chinese.
	Language string
}

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Prefetch, 20)
	setDefault(&c.Concurrency, 1)
	setDefault(&c.AckWait, 30*time.Second)
	setDefault(&c.StopTimeout, 20*time.Second)
	setDefault(&c.DepthInterval, 15*time.Second)
	setDefault(&c.Observer, consumer.Observer(adapter.Unobserved{}))
	if c.DeadLetterStream != "" {
		setDefault(&c.MaxDeliveries, 5)
	}
	if len(c.Retry) == 0 {
		c.Retry = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}
	}
	if c.Consuming == nil {
		c.Consuming = func() {}
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	c.Logger = c.Logger.With(slog.String("consumer", c.Name), slog.String("nats_stream", c.Stream))
	return c, c.check()
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) check() error {
	var errs []error
	wrong := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("natsconsumer.Config: "+format, args...))
	}
	if _, err := address.ParseNATS(c.URL); err != nil {
		wrong("URL %w", err)
	}
	for field, name := range map[string]string{"Stream": c.Stream, "Name": c.Name} {
		if !isName(name) {
			wrong("%s is missing or holds a dot, a wildcard, a slash or white space", field)
		}
	}
	if c.Concurrency < 1 || c.Concurrency > c.Prefetch {
		wrong("Concurrency is %d; it must be between 1 and Prefetch, which is %d", c.Concurrency, c.Prefetch)
	}
	if c.MaxDeliveries < 0 || c.MaxDeliveries > 0 && c.DeadLetterStream == "" {
		wrong("MaxDeliveries is %d without DeadLetterStream; name the stream that gets the messages", c.MaxDeliveries)
	}
	if c.AckWait < time.Second || c.StopTimeout < 0 || c.DepthInterval < 0 {
		wrong("AckWait is below a second, or StopTimeout or DepthInterval is negative")
	}
	for _, d := range c.Retry {
		if d <= 0 {
			wrong("Retry holds %v; a failed message must not be handled again at once", d)
		}
	}
	if err := c.language().Check(); err != nil {
		wrong("Language: %w", err)
	}
	return errors.Join(errs...)
}

func (c Config) language() logtext.Language { return logtext.Language(c.Language) }
