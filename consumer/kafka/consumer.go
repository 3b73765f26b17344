package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/kafkaconn"
)

const (
	// answerTimeout is how long a broker may take for an answer.
	answerTimeout = 5 * time.Second
	// commitInterval is how often offsets of handled messages are committed.
	commitInterval = time.Second
	// commitTimeout bounds the last commit of partitions that move, and of a stop.
	commitTimeout = 5 * time.Second
	// cancelGrace is how long handlers get to return after their context has ended.
	cancelGrace = 2 * time.Second
	// pollPause is the wait after a poll that found only errors.
	pollPause = 200 * time.Millisecond
)

// createPauses are the waits before another try to create topics.
var createPauses = backoff.Exponential(200*time.Millisecond, 15*time.Second)

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
		return nil, fmt.Errorf("kafka.Config: %w", err)
	}
	return &Consumer{config: config}, nil
}

func (c Config) connection() kafkaconn.Config {
	return kafkaconn.Config{Address: c.cluster, Name: c.Name, TLS: c.TLS, AnswerTimeout: answerTimeout}
}

// Run hands the messages of the group to h until ctx ends. After the end of ctx, Run takes no further message, lets the
// handlers finish, commits, leaves the group, and returns nil. Run returns an error when handlers outlast
// Config.StopTimeout; their messages are redelivered. Run may be called several times, also at once: each call is a
// consumer of the group.
func (c *Consumer) Run(ctx context.Context, h consumer.Handler) error {
	around := []consumer.Middleware{consumer.Recover()}
	if c.config.Dedup != nil {
		around = append(around, consumer.Deduplicate(c.config.Dedup, c.config.Logger), consumer.Recover())
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	r := &run{
		Config: c.config, handler: consumer.Chain(h, around...), retry: backoff.Steps(c.config.Retry),
		stopping: ctx, work: work, slots: make(chan struct{}, c.config.Concurrency),
		partitions: map[source]*partition{},
	}
	if err := r.open(); err != nil {
		return err
	}
	defer r.producer.Close()
	defer r.client.CloseAllowingRebalance()
	r.background.Go(r.watchDepth)
	if c.config.Create {
		r.createTopics()
	}
	r.poll()
	return r.finish(cancel)
}

// source is one partition of a topic.
type source struct {
	topic     string
	partition int32
}

// run is the state of a call of Run.
type run struct {
	Config
	handler  consumer.Handler
	retry    backoff.Steps
	client   *kgo.Client
	producer *kafkaconn.Producer
	// stopping ends when no further message is to be begun; work, the handlers' context, ends some time after.
	stopping, work context.Context
	// slots bounds the handlers of all partitions.
	slots      chan struct{}
	background lifecycle.Group

	mu         sync.Mutex
	partitions map[source]*partition
}

// open makes the clients: one for the group, and one for retries and dead letters.
func (r *run) open() error {
	options, err := r.connection().Options()
	if err != nil {
		return err
	}
	r.client, err = kgo.NewClient(append(options,
		kgo.ConsumerGroup(r.Group), kgo.ConsumeTopics(append(r.retryTopics(), r.Topics...)...),
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitInterval), kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(r.assigned), kgo.OnPartitionsRevoked(r.revoked), kgo.OnPartitionsLost(r.lost),
		kgo.RebalanceTimeout(r.StopTimeout+2*commitTimeout),
	)...)
	if err != nil {
		return fmt.Errorf("make a client of Kafka: %w", err)
	}
	r.producer, err = kafkaconn.NewProducer(kafkaconn.ProducerConfig{Config: r.connection(), Window: r.Concurrency + 1})
	if err != nil {
		r.client.CloseAllowingRebalance()
		return err
	}
	return nil
}

// poll hands fetched messages to their partitions until the run stops.
func (r *run) poll() {
	for r.stopping.Err() == nil {
		fetches := r.client.PollRecords(r.stopping, r.Prefetch)
		fetches.EachError(func(topic string, partition int32, err error) {
			if r.stopping.Err() == nil {
				r.Logger.LogAttrs(r.stopping, slog.LevelWarn, "not consuming, trying again",
					slog.String("topic", topic), slog.Int("partition", int(partition)), slog.Any("error", err))
			}
		})
		fetches.EachPartition(r.deliver)
		r.client.AllowRebalance()
		if fetches.NumRecords() == 0 && fetches.Err() != nil {
			_ = backoff.Sleep(r.stopping, pollPause)
		}
	}
}

// deliver adds the messages of a fetch to their partition. The poll is one of the client's: a partition that has moved
// meanwhile has no fetch.
func (r *run) deliver(fetched kgo.FetchTopicPartition) {
	if len(fetched.Records) == 0 {
		return
	}
	p := r.partition(source{fetched.Topic, fetched.Partition})
	if p != nil && p.add(fetched.Records, fetched.HighWatermark) > r.Prefetch {
		r.client.PauseFetchPartitions(p.source.set())
	}
}

func (s source) set() map[string][]int32 { return map[string][]int32{s.topic: {s.partition}} }

func (r *run) partition(of source) *partition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.partitions[of]
}

// assigned begins the handling of partitions.
func (r *run) assigned(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	r.mu.Lock()
	count := 0
	for topic, partitions := range topics {
		for _, number := range partitions {
			p := newPartition(r, source{topic, number})
			r.partitions[p.source] = p
			p.working.Go(p.work)
			count++
		}
	}
	r.mu.Unlock()
	if count > 0 {
		r.Logger.LogAttrs(r.stopping, slog.LevelInfo, "consuming", slog.Int("partitions", count),
			slog.Int("concurrency", r.Concurrency))
		r.Consuming()
	}
}

// revoked ends the handling of partitions that move to another consumer, and commits what was handled.
func (r *run) revoked(ctx context.Context, client *kgo.Client, topics map[string][]int32) {
	r.end(r.take(topics))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), commitTimeout)
	defer cancel()
	if err := client.CommitMarkedOffsets(ctx); err != nil {
		r.Logger.LogAttrs(ctx, slog.LevelWarn, "offsets not committed; handled messages will be redelivered",
			slog.Any("error", err))
	}
}

// lost ends the handling of partitions that another consumer has by now.
func (r *run) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	lost := r.take(topics)
	for _, p := range lost {
		p.lose()
	}
	r.end(lost)
}

// take removes partitions from the run.
func (r *run) take(topics map[string][]int32) (taken []*partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for topic, partitions := range topics {
		for _, number := range partitions {
			of := source{topic, number}
			if p := r.partitions[of]; p != nil {
				delete(r.partitions, of)
				taken = append(taken, p)
			}
		}
	}
	return taken
}

// end stops partitions and waits for their handlers, for StopTimeout at most. Then their messages are redelivered.
func (r *run) end(partitions []*partition) {
	for _, p := range partitions {
		p.stop()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), r.StopTimeout)
	defer cancel()
	for _, p := range partitions {
		if p.working.Wait(ctx) != nil {
			p.lose() // a commit would come too late
		}
		r.client.ResumeFetchPartitions(p.source.set())
	}
}

// finish waits for the handlers. After StopTimeout their context ends.
func (r *run) finish(cancelWork context.CancelFunc) error {
	r.mu.Lock()
	all := make([]*partition, 0, len(r.partitions))
	for _, p := range r.partitions {
		all = append(all, p)
	}
	r.mu.Unlock()
	for _, p := range all {
		p.stop()
	}
	err := r.await(all, r.StopTimeout)
	if err != nil {
		err = fmt.Errorf("handlers took longer than the %v of StopTimeout; their messages will be redelivered", r.StopTimeout)
	}
	cancelWork()
	_ = r.await(all, cancelGrace)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), commitTimeout)
	defer cancel()
	if failed := r.client.CommitMarkedOffsets(ctx); failed != nil && !errors.Is(failed, context.Canceled) {
		r.Logger.LogAttrs(ctx, slog.LevelWarn, "offsets not committed; handled messages will be redelivered",
			slog.Any("error", failed))
	}
	_ = r.background.Wait(ctx) // ends with the run's context
	return err
}

func (r *run) await(partitions []*partition, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.work), within)
	defer cancel()
	for _, p := range partitions {
		if err := p.working.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// watchDepth reports how many messages wait in the partitions of this consumer.
func (r *run) watchDepth() {
	for backoff.Sleep(r.stopping, r.DepthInterval) == nil {
		depths := map[string]int{}
		r.mu.Lock()
		for of, p := range r.partitions {
			depths[of.topic] += p.depth()
		}
		r.mu.Unlock()
		for topic, depth := range depths {
			r.Observer.Depth(topic, depth)
		}
	}
}

// createTopics creates the retry topics and the dead-letter topic, unless they exist.
func (r *run) createTopics() {
	for failures := 0; r.stopping.Err() == nil; failures++ {
		err := r.tryCreate()
		if err == nil {
			return
		}
		if failures == 0 {
			r.Logger.LogAttrs(r.stopping, slog.LevelWarn, "topics not created, trying again; not consuming",
				slog.Any("error", err))
		}
		_ = backoff.Sleep(r.stopping, createPauses.Delay(failures))
	}
}

func (r *run) tryCreate() error {
	request := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range append(r.retryTopics(), r.DeadTopic) {
		topic := kmsg.NewCreateTopicsRequestTopic()
		topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, -1, -1
		request.Topics = append(request.Topics, topic)
	}
	response, err := request.RequestWith(r.stopping, r.client)
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
