// Package kafkaconsumer lets a service receive messages from Kafka with the handlers, middleware and inboxes of package
// consumer.
//
//	c, err := kafkaconsumer.New(kafkaconsumer.Config{
//		URL:    "kafka://127.0.0.1:9092",
//		Group:  "payments",
//		Topics: []string{"orders"},
//		Delays: []time.Duration{5 * time.Second, 30 * time.Second, 2 * time.Minute},
//	})
//	err = c.Run(ctx, inbox.Handler(pay))
//
// Run connects, reconnects, takes its share of the partitions, and returns when its context ends, after running
// handlers have finished.
//
// # What a handler's answer means
//
//   - nil: the message is done. Its offset is committed soon after.
//   - consumer.Reject(err): the message can never be handled. The message goes to the dead-letter topic.
//   - consumer.ErrDuplicate: a copy was handled before. The message is dropped.
//   - any other error, and a panic: with Config.Delays the message goes to the retry topic of its next delay, with its
//     count and its first cause in headers, and after the last one to the dead-letter topic. Without Delays the message
//     is handled again after a pause ([Config.Retry]), and its partition waits meanwhile.
//
// # At least once, and order
//
// An offset is committed after the handler's effect, never before, and a copy in a retry topic or the dead-letter
// topic is acknowledged by all in-sync replicas before the message is done. So a message is redelivered when a process
// died before the commit, or when its partition moved to another consumer meanwhile. Config.Dedup or package inbox/sql
// drops the copies, as for RabbitMQ.
//
// A message that ends the processes which handle it fails in no process. A consumer notes in the metadata of the
// group's offset that it handles the first message of a partition, at each handling. When more than 20 processes have
// begun a message and told nothing, the message becomes a dead letter without its handler. After three, its consumer
// handles it alone, and commits after each message of its partition, so that no other message is taken for it.
//
// Messages of a transaction of Kafka are handled after its commit, and never after its abort.
//
// The messages of a partition are handled one after another, in their order. A message that waits in a retry topic is
// overtaken by later ones.
package kafkaconsumer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/consumer/dedup"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/logtext"
)

// Config says which topics are consumed, and how. URL, Group and Topics must be given.
type Config struct {
	// URL is kafka://USER:PASSWORD@HOST:PORT,HOST:PORT with options: tls, ca, cert, key, skip_verify, sasl (plain,
	// scram-sha-256, scram-sha-512) and client_id. The option max_message_bytes of publishers has no effect.
	URL string
	// TLS is used where the URL asks for TLS and names no files; nil is Go's default.
	TLS *tls.Config
	// Group is the consumer group. Its consumers share the partitions. A new group begins with the oldest messages. The
	// retry topics have the group GROUP.retry.
	Group string
	// Name is the consumer's, in log lines and in Message.Consumer. Default: the group's.
	Name string
	// Topics are the topics. Run waits until they exist.
	Topics []string
	// Delays are the retry steps: a failed message waits in the topic GROUP.retry.DELAY, the first delay after its first
	// failure and so on, and is then handled by a consumer of the group. None: the message waits in this process, for
	// Retry, and so does its partition. Messages that wait in the topics of former Delays are handled too, as long as the
	// topics exist when Run begins.
	Delays []time.Duration
	// RetryLimit is how often a message is retried by Delays, whose last entry repeats, before it is a dead letter.
	// Default: once for each of Delays.
	RetryLimit int
	// DeadTopic gets rejected messages, and messages after their last retry. Default: GROUP.dead.
	DeadTopic string
	// Create creates the retry topics and the dead-letter topic with the cluster's defaults, unless they exist. Without
	// Create a message whose topic is missing is handled again after Retry, and its partition waits.
	Create bool
	// Prefetch is how many messages of a partition wait in this process before the partition is fetched no more for a
	// while. A fetch brings up to 1 MiB of a partition. Default: 100.
	Prefetch int
	// Concurrency is how many handlers run at once, each for another partition. Default: 1.
	Concurrency int
	// Dedup remembers which messages were handled and drops their copies. Nil: the handler sees every copy.
	Dedup dedup.Store
	// Retry lists the pauses before a message is handled again that stays in this process: a failed one without Delays,
	// a busy one, and one that the cluster cannot take into a retry topic. The last entry repeats, and all have jitter.
	// Default: 1s, 5s, 30s.
	Retry []time.Duration
	// StopTimeout is how long running handlers may take after Run's context has ended, or after their partition has
	// moved to another consumer. Default: 20 s.
	StopTimeout time.Duration
	// Consuming is called each time that the consumer gets partitions. Consuming must not block. Nil: no call.
	Consuming func()
	// Observer receives the result of every delivery, how many messages wait in the consumer's own partitions of each
	// topic, and how many records DeadTopic has. Settled letters count as long as an earlier letter of their partition is
	// open (NewDeadLetters). Nil: none.
	Observer consumer.Observer
	// DepthInterval is how often the waiting messages are reported to Observer. Default: 15 s.
	DepthInterval time.Duration
	// Logger gets the events of the group and failed messages. Default: slog.Default().
	Logger *slog.Logger
	// Language is the language of the fixed log texts: "en", the default, or "zh", Chinese.
	Language string

	cluster address.Kafka
}

// Defaults of Config.
const (
	defaultPrefetch      = 100
	defaultStopTimeout   = 20 * time.Second
	defaultDepthInterval = 15 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	setDefault(&c.Prefetch, defaultPrefetch)
	setDefault(&c.Concurrency, 1)
	setDefault(&c.StopTimeout, defaultStopTimeout)
	setDefault(&c.DepthInterval, defaultDepthInterval)
	setDefault(&c.RetryLimit, len(c.Delays))
	setDefault(&c.DeadTopic, c.Group+".dead")
	setDefault(&c.Name, c.Group)
	setDefault(&c.Logger, slog.Default())
	setDefault(&c.Observer, consumer.Observer(adapter.Unobserved{}))
	if len(c.Retry) == 0 {
		c.Retry = []time.Duration{time.Second, 5 * time.Second, 30 * time.Second}
	}
	if c.Consuming == nil {
		c.Consuming = func() {}
	}
	c.Logger = c.Logger.With(slog.String("consumer", c.Name), slog.String("consumer_group", c.Group))
	var err error
	if c.cluster, err = address.ParseKafka(c.URL); err != nil {
		err = fmt.Errorf("kafkaconsumer.Config: URL %w", err)
	}
	return c, errors.Join(err, c.check(), c.checkTopics())
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
		errs = append(errs, fmt.Errorf("kafkaconsumer.Config: "+format, args...))
	}
	if c.Group == "" {
		wrong("Group is missing; give the name of the consumer group")
	}
	if len(c.Topics) == 0 {
		wrong("Topics is empty; give the topics to consume")
	}
	if c.Prefetch < 1 || c.Concurrency < 1 {
		wrong("Prefetch is %d and Concurrency is %d; both must be positive", c.Prefetch, c.Concurrency)
	}
	for _, d := range c.Delays {
		if d < time.Millisecond || d%time.Millisecond != 0 {
			wrong("Delays holds %v; a delay is one or more whole milliseconds", d)
		}
	}
	if c.RetryLimit < 0 || c.RetryLimit > 0 && len(c.Delays) == 0 {
		wrong("RetryLimit is %d; it must be positive, and counts the retries by Delays", c.RetryLimit)
	}
	for _, d := range c.Retry {
		if d <= 0 {
			wrong("Retry holds %v; a failed message must not be handled again at once", d)
		}
	}
	if c.StopTimeout < 0 || c.DepthInterval < 0 {
		wrong("StopTimeout is %v and DepthInterval is %v; neither may be negative", c.StopTimeout, c.DepthInterval)
	}
	if err := c.language().Check(); err != nil {
		wrong("Language: %w", err)
	}
	return errors.Join(errs...)
}

// checkTopics checks the names of all topics. A topic that gets copies must have no other role: a dead letter in a
// consumed topic would be handled without end.
func (c Config) checkTopics() error {
	var errs []error
	copies := append(c.retryTopics(), c.DeadTopic)
	for _, topic := range slices.Concat(c.Topics, copies) {
		if err := (&kafkaconn.Message{Topic: topic}).Check(); err != nil {
			errs = append(errs, fmt.Errorf("kafkaconsumer.Config: Group, Topics or DeadTopic gives a bad name: %w", err))
		}
	}
	for i, topic := range copies {
		if slices.Contains(c.Topics, topic) || slices.Contains(copies[:i], topic) {
			errs = append(errs, fmt.Errorf("kafkaconsumer.Config: the topic %q has two roles among Topics, the retry topics "+
				"and DeadTopic; give each role a topic of its own", topic))
		}
	}
	return errors.Join(errs...)
}

func (c Config) language() logtext.Language { return logtext.Language(c.Language) }

// retryTopic is where a message waits that was retried so often.
func (c Config) retryTopic(retries int) (topic string, delay time.Duration) {
	delay = c.Delays[min(retries, len(c.Delays)-1)]
	return c.retryPrefix() + delay.String(), delay
}

// retryPrefix begins the names of the group's retry topics; the delay follows.
func (c Config) retryPrefix() string { return c.Group + ".retry." }

// delayOf is the delay of a retry topic, also of one that is not of Delays; 0 for any other topic.
func (c Config) delayOf(topic string) time.Duration {
	text, is := strings.CutPrefix(topic, c.retryPrefix())
	delay, err := time.ParseDuration(text)
	if !is || err != nil || delay.String() != text {
		return 0
	}
	return delay
}

// retryTopics are all of them, each once.
func (c Config) retryTopics() (topics []string) {
	seen := map[string]bool{}
	for i := range c.Delays {
		if topic, _ := c.retryTopic(i); !seen[topic] {
			seen[topic] = true
			topics = append(topics, topic)
		}
	}
	return topics
}
