package kafka_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// A consumer that may not create its topics takes no partition from a consumer that works.
func TestConsumerWithoutItsTopicsJoinsNoGroup(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	g, b := watch(k), newBook()
	var tries atomic.Int64
	k.Fake.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		tries.Add(1)
		response := r.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, asked := range r.(*kmsg.CreateTopicsRequest).Topics {
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode = asked.Topic, kerr.TopicAuthorizationFailed.Code
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
	handler := func(_ context.Context, m *consumer.Message) error {
		b.note(m)
		return nil
	}
	able := quick(t, k)
	able.Create = false
	works := start(t, able, handler)
	unable := start(t, quick(t, k), handler)
	servers.Eventually(t, time.Minute, "the second has asked several times", func() bool { return tries.Load() > 3 })
	write(t, k, 0, 3*keys)
	b.await(t, 3*keys)
	if n := g.size(); n != 1 {
		t.Errorf("the group has %d members, want only the one that works", n)
	}
	for _, r := range []*running{works, unable} {
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}

// A consumer that has lost its partitions reports that none of their messages wait for it.
func TestDepthForgetsLostPartitions(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	write(t, k, 0, 100)
	o := &observer{depth: map[string]int{}, results: map[consumer.Result]int{}}
	depth := func(want int) {
		t.Helper()
		servers.Eventually(t, time.Minute, fmt.Sprintf("the depth is %d", want), func() bool {
			o.mu.Lock()
			defer o.mu.Unlock()
			n, known := o.depth["orders"]
			return known && n == want
		})
	}
	config := quick(t, k)
	config.Observer, config.DepthInterval, config.StopTimeout = o, 20*time.Millisecond, 300*time.Millisecond
	release := make(chan struct{})
	r := start(t, config, func(context.Context, *consumer.Message) error {
		<-release
		return nil
	})
	depth(100)
	k.Fake.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		response := r.ResponseKind().(*kmsg.JoinGroupResponse)
		response.ErrorCode = kerr.GroupAuthorizationFailed.Code
		return response, nil, true
	})
	k.Fake.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		response := r.ResponseKind().(*kmsg.HeartbeatResponse)
		response.ErrorCode = kerr.UnknownMemberID.Code
		return response, nil, true
	})
	depth(0)
	close(release)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}

func TestAbortedTransactionsAreNotHandled(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	writer, err := kgo.NewClient(kgo.SeedBrokers(k.Hosts...), kgo.TransactionalID("foreign"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for id, end := range map[string]kgo.TransactionEndTry{"aborted": kgo.TryAbort, "committed": kgo.TryCommit} {
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		record := &kgo.Record{
			Topic: "orders", Key: []byte("k"), Headers: []kgo.RecordHeader{{Key: "msghandler-id", Value: []byte(id)}},
		}
		if err := writer.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := writer.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	write(t, k, 0, keys) // behind the transactions in their partition
	b := newBook()
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		b.note(m)
		return nil
	})
	b.await(t, 1+keys)
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if b.times("committed") != 1 || b.times("aborted") != 0 {
		t.Errorf("the committed message was handled %d times, the aborted message %d times",
			b.times("committed"), b.times("aborted"))
	}
}

// A cluster that takes no offset shows in the log while the consumer runs, and not at its end only.
func TestRefusedCommitsAreLogged(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	k.Fake.ControlKey(int16(kmsg.OffsetCommit), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		response := r.ResponseKind().(*kmsg.OffsetCommitResponse)
		for _, asked := range r.(*kmsg.OffsetCommitRequest).Topics {
			topic := kmsg.NewOffsetCommitResponseTopic()
			topic.Topic, topic.TopicID = asked.Topic, asked.TopicID
			for _, p := range asked.Partitions {
				partition := kmsg.NewOffsetCommitResponseTopicPartition()
				partition.Partition, partition.ErrorCode = p.Partition, kerr.TopicAuthorizationFailed.Code
				topic.Partitions = append(topic.Partitions, partition)
			}
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
	config, log := quick(t, k), &lines{}
	config.Logger = log.logger()
	r := start(t, config, func(context.Context, *consumer.Message) error { return nil })
	write(t, k, 0, 1)
	servers.Eventually(t, time.Minute, "a line about the commit", func() bool {
		return strings.Contains(log.String(), "offsets not committed, trying again")
	})
	if err := r.end(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("no line has the cause: %s", log)
	}
}

// A consumer whose cluster is away from the beginning says so, and consumes when the cluster is there.
func TestClusterThatIsAwayIsLogged(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	write(t, k, 0, 1)
	restore := k.Cut()
	defer restore()
	config, log, b := quick(t, k), &lines{}, newBook()
	config.Create, config.Logger = false, log.logger()
	r := start(t, config, func(_ context.Context, m *consumer.Message) error {
		b.note(m)
		return nil
	})
	servers.Eventually(t, time.Minute, "a line about the cluster", func() bool {
		return strings.Contains(log.String(), "not consuming, trying again")
	})
	restore()
	b.await(t, 1)
	if err := r.end(); err != nil {
		t.Error(err)
	}
}
