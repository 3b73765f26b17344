package kafkaconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/logtext"
)

const (
	// answerTimeout is how long a broker may take for an answer.
	answerTimeout = 5 * time.Second
	// prepareTimeout bounds a try to reach the cluster and to create topics.
	prepareTimeout = 15 * time.Second
	// commitTimeout bounds the last commit of partitions that move, and of a stop; leaveTimeout bounds leaving the group.
	commitTimeout, leaveTimeout = 5 * time.Second, 5 * time.Second
	// largestCopy is the largest batch of copies that a client sends, in bytes. This size is larger than the limits of
	// topics, so that only a topic's max.message.bytes decides which copies and replays are too large.
	largestCopy = 64 << 20
)

// preparePauses are the waits before another try to reach the cluster and to create topics.
var preparePauses = backoff.Exponential(200*time.Millisecond, 15*time.Second)

// Consumer receives the messages of one group.
type Consumer struct {
	config Config
}

// New checks the configuration. New makes no connection.
func New(config Config) (*Consumer, error) {
	config, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	if _, err := config.connection().Options(); err != nil {
		return nil, fmt.Errorf("kafkaconsumer.Config: %w", err)
	}
	return &Consumer{config: config}, nil
}

func (c Config) connection() kafkaconn.Config {
	return kafkaconn.Config{Address: c.cluster, Name: c.Name, TLS: c.TLS, AnswerTimeout: answerTimeout}
}

// Run hands the messages of the group to h until ctx ends. After the end of ctx, Run takes no further message, lets the
// handlers finish, commits, leaves the group, and returns nil. Run returns an error when handlers outlast
// Config.StopTimeout; their messages are redelivered. A cluster that does not answer delays the return by 10 s: 5 s for
// the commit and 5 s for leaving; handlers that outlast StopTimeout delay it by 2 s more. Run may be called several
// times, also at once: each call is a consumer of the group.
func (c *Consumer) Run(ctx context.Context, h consumer.Handler) error {
	work, cancelWork := context.WithCancel(logtext.With(context.WithoutCancel(ctx), c.config.language()))
	defer cancelWork()
	waiting, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	r := &run{
		Config: c.config, handler: adapter.Around(h, c.config.Dedup, c.config.Logger), retry: backoff.Steps(c.config.Retry),
		stopping: ctx, work: work, cancelWork: cancelWork, waiting: waiting, abandon: abandon,
		slots: make(chan struct{}, c.config.Concurrency), alone: make(chan struct{}, 1),
	}
	defer r.close()
	if err := r.open(); err != nil {
		return err
	}
	r.background.Go(r.watchDepth)
	for _, in := range r.intakes {
		r.background.Go(in.poll)
	}
	<-ctx.Done()
	return r.finish()
}

// run is the state of a call of Run.
type run struct {
	Config
	handler  consumer.Handler
	retry    backoff.Steps
	producer *kafkaconn.Producer
	// intakes are the topics, and the retry topics as a group of their own: in one group a new consumer might get
	// nothing but partitions of retry topics.
	intakes []*intake
	// former are retry topics of the group that exist and are none of Delays.
	former []string
	// stopping ends when no further message is to be begun. work, the handlers' context, ends some time after, and
	// waiting ends when nothing waits for handlers any more.
	stopping, work, waiting context.Context
	cancelWork, abandon     context.CancelFunc
	// slots bounds the handlers of all partitions.
	slots chan struct{}
	// alone has an element while a message waits for all slots, or has them.
	alone      chan struct{}
	background lifecycle.Group
}

// open makes the clients: one for retries and dead letters, and one for each group.
func (r *run) open() (err error) {
	connection := r.connection()
	connection.Address.MaxMessage = largestCopy
	r.producer, err = kafkaconn.NewProducer(kafkaconn.ProducerConfig{Config: connection, Window: r.Concurrency + 1})
	if err != nil {
		return err
	}
	r.prepare()
	if err := r.consume(&intake{run: r}, r.Group, r.Topics); err != nil {
		return err
	}
	topics := append(r.retryTopics(), r.former...)
	if len(topics) == 0 {
		return nil
	}
	return r.consume(&intake{run: r, copies: true}, r.Group+".retry", topics)
}

func (r *run) consume(in *intake, group string, topics []string) error {
	err := in.open(group, topics)
	if err == nil {
		r.intakes = append(r.intakes, in)
	}
	return err
}

// close leaves the groups and ends the connections that open has made.
func (r *run) close() {
	r.each((*intake).leave)
	if r.producer != nil {
		r.producer.Close()
	}
}

// each calls do for all intakes at once, and waits.
func (r *run) each(do func(*intake)) {
	var calls lifecycle.Group
	for _, in := range r.intakes {
		calls.Go(func() { do(in) })
	}
	_ = calls.Wait(context.Background())
}

// finish waits for the handlers. After StopTimeout their context ends. The intakes keep their partitions meanwhile, so
// that a rebalance waits for the handlers too.
func (r *run) finish() (err error) {
	var all []*partition
	for _, in := range r.intakes {
		all = append(all, in.all()...)
	}
	if !r.await(all, r.StopTimeout) {
		err = fmt.Errorf("handlers took longer than the %v of StopTimeout; their messages will be redelivered", r.StopTimeout)
	}
	r.cancelWork()
	if !r.await(all, adapter.CancelGrace) {
		giveUp(all) // another consumer gets the messages
	}
	r.abandon()
	r.each(func(in *intake) { _ = in.commit() }) // logged
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), commitTimeout)
	defer cancel()
	_ = r.background.Wait(ctx) // ends with the run's context
	return err
}

// await waits for the handlers of partitions that end, and reports whether they ended in time.
func (r *run) await(partitions []*partition, within time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), within)
	defer cancel()
	for _, p := range partitions {
		if p.working.Wait(ctx) != nil {
			return false
		}
	}
	return true
}

// watchDepth reports how many messages wait in the partitions of this consumer.
func (r *run) watchDepth() {
	for backoff.Sleep(r.stopping, r.DepthInterval) == nil {
		depths := map[string]int{}
		for _, topic := range slices.Concat(r.retryTopics(), r.former, r.Topics) {
			depths[topic] = 0 // also where all partitions have moved to other consumers
		}
		for _, in := range r.intakes {
			for _, p := range in.all() {
				depths[p.source.topic] += p.depth()
			}
		}
		for topic, depth := range depths {
			r.Observer.Depth(topic, depth)
		}
		r.reportDeadLetters()
	}
}

// prepare waits until the cluster answers and the topics of copies are created. A member of a group takes partitions,
// and must be able to consume them; and the client itself reports no cluster that is away from the beginning.
func (r *run) prepare() {
	for failures := 0; r.stopping.Err() == nil; failures++ {
		err := r.tryPrepare()
		if err == nil {
			return
		}
		delay := preparePauses.Delay(failures)
		if r.stopping.Err() == nil {
			r.Logger.LogAttrs(r.stopping, slog.LevelWarn, "not consuming, trying again",
				slog.Int64("retry_in_ms", delay.Milliseconds()), slog.Any("cause", err))
		}
		_ = backoff.Sleep(r.stopping, delay) // An error is the context's: the loop ends.
	}
}

func (r *run) tryPrepare() error {
	ctx, cancel := context.WithTimeout(r.stopping, prepareTimeout)
	defer cancel()
	err := r.producer.Reach(ctx)
	if err == nil && r.Create {
		err = r.createTopics(ctx)
	}
	if err == nil {
		err = r.findFormer(ctx)
	}
	return err
}

// findFormer looks for retry topics of former Delays. Without a reader their messages would stay until retention
// deletes them.
func (r *run) findFormer(ctx context.Context) error {
	listed, err := kadm.NewClient(r.producer.Client()).ListTopics(ctx)
	if err != nil {
		return fmt.Errorf("look for retry topics: %w", err)
	}
	known := slices.Concat(r.retryTopics(), r.Topics, []string{r.DeadTopic})
	r.former = slices.DeleteFunc(listed.Names(), func(topic string) bool {
		return r.delayOf(topic) == 0 || slices.Contains(known, topic)
	})
	if len(r.former) > 0 {
		r.Logger.LogAttrs(ctx, slog.LevelInfo, "retry topics are none of Delays; their messages are handled too; "+
			"delete the topics when the group has read them", slog.Any("topics", r.former))
	}
	return nil
}

// createTopics creates the retry topics and the dead-letter topic, unless they exist.
func (r *run) createTopics(ctx context.Context) error {
	request := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range append(r.retryTopics(), r.DeadTopic) {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(ctx, r.producer.Client())
	if err != nil {
		return fmt.Errorf("create topics: %w", err)
	}
	for i := range response.Topics {
		topic := &response.Topics[i]
		if err := kerr.ErrorForCode(topic.ErrorCode); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", topic.Topic, err)
		}
	}
	return nil
}
