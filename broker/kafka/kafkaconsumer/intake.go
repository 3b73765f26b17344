package kafkaconsumer

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

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

const (
	// commitInterval is how often offsets of handled messages are committed.
	commitInterval = time.Second
	// fetchBytes is how much a fetch brings of one partition.
	fetchBytes = 1 << 20
	// pollPause is the wait after a poll that found only errors.
	pollPause = 200 * time.Millisecond
	// fetchLogInterval is how often one cause of failed fetches is logged. maxFailedFetches bounds the causes in memory.
	fetchLogInterval, maxFailedFetches = 10 * time.Minute, 1000
)

// source is one partition of a topic.
type source struct {
	topic     string
	partition int32
}

func (s source) set() map[string][]int32 { return map[string][]int32{s.topic: {s.partition}} }

// intake is a consumer of one group, with the partitions that it has now.
type intake struct {
	run *run
	// copies: the topics are retry topics. Only there the headers of copies mean something: in another topic anybody may
	// have written them, as a program that writes a dead letter once more.
	copies bool
	client *kgo.Client
	// requests is the context of all requests of the client; cancel ends them.
	requests context.Context
	cancel   context.CancelFunc
	// commits has commits that outlast commitTimeout.
	commits lifecycle.Group

	mu         sync.Mutex
	partitions map[source]*partition
	// commitError is why the last of the regular commits failed; empty after a success.
	commitError string
	// excused has, of partitions that were lost while their first message was handled, the offset of the message: the
	// count of processes that told nothing may contain this one.
	excused map[source]int64
	// failedFetches are the causes of failed fetches by topic, and when they were logged. Only poll uses them.
	failedFetches map[string]time.Time
}

// open makes the client, which joins the group.
func (in *intake) open(group string, topics []string) error {
	r := in.run
	options, err := r.connection().Options()
	if err != nil {
		return err
	}
	in.partitions, in.excused = map[source]*partition{}, map[source]int64{}
	in.failedFetches = map[string]time.Time{}
	in.requests, in.cancel = context.WithCancel(context.WithoutCancel(r.stopping))
	in.client, err = kgo.NewClient(append(options,
		kgo.WithContext(in.requests),
		kgo.ConsumerGroup(group), kgo.ConsumeTopics(topics...), kgo.FetchMaxPartitionBytes(fetchBytes),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), // an aborted transaction of another writer has no effect here
		kgo.AutoCommitMarks(), kgo.AutoCommitInterval(commitInterval), kgo.AutoCommitCallback(in.committed),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(in.assigned), kgo.OnPartitionsRevoked(in.revoked), kgo.OnPartitionsLost(in.lost),
		kgo.OnOffsetsFetched(in.fetched),
		kgo.RebalanceTimeout(r.StopTimeout+2*commitTimeout),
	)...)
	if err != nil {
		in.cancel()
		return fmt.Errorf("make a client of Kafka: %w", err)
	}
	return nil
}

// poll hands fetched messages to their partitions until the run stops.
func (in *intake) poll() {
	r := in.run
	for r.stopping.Err() == nil {
		fetches := in.client.PollFetches(r.stopping)
		gone := map[string]bool{}
		fetches.EachError(func(topic string, partition int32, err error) {
			if errors.Is(err, kerr.UnknownTopicID) {
				gone[topic] = true
			}
			in.logFetch(topic, partition, err)
		})
		fetches.EachPartition(in.deliver)
		in.client.AllowRebalance()
		for topic := range gone {
			in.subscribeAnew(topic)
		}
		if fetches.NumRecords() == 0 && fetches.Err() != nil {
			_ = backoff.Sleep(r.stopping, pollPause)
		}
	}
}

// logFetch logs a failed fetch, each cause once in a while: the client goes on to try several times a second.
func (in *intake) logFetch(topic string, partition int32, err error) {
	r, cause := in.run, topic+" "+err.Error()
	if r.stopping.Err() != nil || time.Since(in.failedFetches[cause]) < fetchLogInterval {
		return
	}
	if len(in.failedFetches) >= maxFailedFetches {
		clear(in.failedFetches)
	}
	in.failedFetches[cause] = time.Now()
	text := "not consuming, trying again"
	if errors.Is(err, kerr.TopicAuthorizationFailed) {
		text = "the user may not read a topic; its messages wait; grant Read on the topic, or delete a retry topic that " +
			"is not needed"
	}
	r.Logger.LogAttrs(r.stopping, slog.LevelWarn, text,
		slog.String("topic", topic), slog.Int("partition", int(partition)), slog.Any("cause", err))
}

// subscribeAnew goes on with a topic that was deleted, as soon as a topic of that name exists, from its oldest message.
// The client would refuse the new topic for as long as the client lives. Offsets of the first topic must not be
// committed any more: the new topic has the same offsets.
func (in *intake) subscribeAnew(topic string) {
	for _, p := range in.all() {
		if p.source.topic == topic {
			p.lose()
		}
	}
	in.client.PurgeTopicsFromClient(topic)
	in.client.AddConsumeTopics(topic)
	in.run.Logger.LogAttrs(in.run.work, slog.LevelWarn, "topic was deleted, perhaps made again; the consumer waits for "+
		"a topic of this name and reads it from the start; nothing to do unless the topic stays away",
		slog.String("topic", topic))
}

// deliver adds the messages of a fetch to their partition, which this consumer has as long as it allows no rebalance. A
// partition with enough messages is not fetched for a while.
func (in *intake) deliver(fetched kgo.FetchTopicPartition) {
	if len(fetched.Records) == 0 {
		return
	}
	in.mu.Lock()
	p := in.partitions[source{fetched.Topic, fetched.Partition}]
	in.mu.Unlock()
	if p != nil {
		p.add(fetched.Records, fetched.HighWatermark)
	}
}

// assigned begins the handling of partitions.
func (in *intake) assigned(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	r, count := in.run, 0
	in.mu.Lock()
	for topic, partitions := range topics {
		for _, number := range partitions {
			p := newPartition(in, source{topic, number})
			first := in.partitions[p.source] // not nil for a topic that was made again
			if first != nil {
				first.lose()
				first.stop()
			}
			in.partitions[p.source] = p
			p.working.Go(func() {
				if first != nil {
					_ = first.working.Wait(context.Background())
				}
				p.work()
			})
			count++
		}
	}
	in.mu.Unlock()
	if count > 0 {
		r.Logger.LogAttrs(r.stopping, slog.LevelInfo, "consuming", slog.Int("partitions", count),
			slog.Int("concurrency", r.Concurrency))
		r.Consuming()
	}
}

// revoked ends the handling of partitions that move to another consumer, and commits what was handled. While the run
// stops, revoked waits for all handlers: the group is not left before, and the cluster takes no commit in between.
func (in *intake) revoked(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	moving := in.find(topics)
	if in.run.stopping.Err() != nil {
		moving = in.all()
	}
	in.end(moving)
	_ = in.commit() // logged
}

// lost ends the handling of partitions that another consumer has by now.
func (in *intake) lost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	lost := in.find(topics)
	for _, p := range lost {
		p.lose()
	}
	in.end(lost)
}

// all are the partitions that this consumer has.
func (in *intake) all() []*partition {
	in.mu.Lock()
	defer in.mu.Unlock()
	all := make([]*partition, 0, len(in.partitions))
	for _, p := range in.partitions {
		all = append(all, p)
	}
	return all
}

// find returns those of the partitions that this consumer has.
func (in *intake) find(topics map[string][]int32) (found []*partition) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for topic, partitions := range topics {
		for _, number := range partitions {
			if p := in.partitions[source{topic, number}]; p != nil {
				found = append(found, p)
			}
		}
	}
	return found
}

// end stops partitions, waits for their handlers, and removes the partitions. After StopTimeout, or when a stop has
// waited as long, the messages of running handlers are redelivered.
func (in *intake) end(partitions []*partition) {
	for _, p := range partitions {
		p.stop()
	}
	ctx, cancel := context.WithTimeout(in.run.waiting, in.run.StopTimeout)
	defer cancel()
	var late []*partition
	for _, p := range partitions {
		if p.working.Wait(ctx) != nil {
			late = append(late, p)
		}
	}
	giveUp(late) // a later commit would come too late
	for _, p := range partitions {
		in.client.ResumeFetchPartitions(p.source.set())
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, p := range partitions {
		delete(in.partitions, p.source)
	}
}

// commit commits the offsets of handled messages.
func (in *intake) commit() error {
	err := in.inTime(commitTimeout, in.client.CommitMarkedOffsets)
	if err != nil {
		in.run.Logger.LogAttrs(in.requests, slog.LevelWarn, "offsets not committed; handled messages will be redelivered",
			slog.Any("cause", err))
	}
	return err
}

// inTime makes a commit. The client's own calls wait for an earlier commit without a bound.
func (in *intake) inTime(within time.Duration, commit func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(in.requests, within)
	defer cancel()
	committed := make(chan error, 1)
	in.commits.Go(func() { committed <- commit(ctx) })
	select {
	case err := <-committed:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// committed logs the failure of a regular commit, once for each cause.
func (in *intake) committed(
	_ *kgo.Client, _ *kmsg.OffsetCommitRequest, response *kmsg.OffsetCommitResponse, err error,
) {
	if response != nil && err == nil {
		err = refusedCommit(response)
	}
	if errors.Is(err, context.Canceled) {
		return // the client leaves the group, after the last commit
	}
	cause := ""
	if err != nil {
		cause = err.Error()
	}
	in.mu.Lock()
	known := cause == in.commitError
	in.commitError = cause
	in.mu.Unlock()
	if err != nil && !known {
		in.run.Logger.LogAttrs(in.run.work, slog.LevelWarn, "offsets not committed, trying again; handled messages will be "+
			"redelivered when the consumer ends before a commit", slog.Any("cause", err))
	}
}

// refusedCommit returns the first error of a partition.
func refusedCommit(response *kmsg.OffsetCommitResponse) error {
	for i := range response.Topics {
		for _, p := range response.Topics[i].Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return fmt.Errorf("topic %s, partition %d: %w", response.Topics[i].Topic, p.Partition, err)
			}
		}
	}
	return nil
}

// leave leaves the group and closes the client.
func (in *intake) leave() {
	ctx, cancel := context.WithTimeout(in.requests, leaveTimeout)
	defer cancel()
	in.client.AllowRebalance()
	if err := in.client.LeaveGroupContext(ctx); err != nil {
		in.run.Logger.LogAttrs(ctx, slog.LevelWarn, "consumer group not left; other consumers get the partitions after the "+
			"session timeout of 45 s; check the cluster", slog.Any("cause", err))
	}
	in.cancel() // otherwise Close waits for the group without a bound
	in.client.Close()
	in.client.AllowRebalance() // Close polls once more, which may hold up a goroutine of the client for ever
	_ = in.commits.Wait(context.Background())
}
