package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/broker/kafka"
	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// plain is a cluster without logins.
func plain(t testing.TB, options ...kfake.Opt) *fakekafka.Cluster {
	t.Helper()
	return fakekafka.Start(t, options)
}

// read returns n records of a topic, in the order of each partition, and fails if there are more.
func read(t testing.TB, k *fakekafka.Cluster, topic string, n int) []kafkaconn.Message {
	t.Helper()
	reader, err := kgo.NewClient(
		kgo.SeedBrokers(k.Hosts...), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	var found []kafkaconn.Message
	poll := func() int {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		fetches := reader.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) { found = append(found, kafkaconn.Read(r)) })
		return fetches.NumRecords()
	}
	servers.Eventually(t, time.Minute, fmt.Sprintf("%s has %d records", topic, n), func() bool {
		poll()
		return len(found) >= n
	})
	for poll() > 0 {
	}
	if len(found) != n {
		t.Errorf("%s has %d records, want %d", topic, len(found), n)
	}
	return found
}

// Every answer of the cluster to a produce request, each given for as long as the client asks.
func TestAnswersOfTheCluster(t *testing.T) {
	t.Parallel()
	k := plain(t)
	for _, test := range []struct {
		answer *kerr.Error
		want   publish.Outcome
	}{
		{kerr.NotEnoughReplicas, publish.Unsent},
		{kerr.NotLeaderForPartition, publish.Unsure},
		{kerr.KafkaStorageError, publish.Unsure},
		{kerr.RequestTimedOut, publish.Unsure},
		{kerr.NotEnoughReplicasAfterAppend, publish.Unsure},
		{kerr.UnknownTopicOrPartition, publish.Refused},
		{kerr.TopicAuthorizationFailed, publish.Refused},
		{kerr.MessageTooLarge, publish.Refused},
		{kerr.InvalidRecord, publish.Refused},
		{kerr.PolicyViolation, publish.Refused},
		{kerr.UnknownServerError, publish.Unsure},
	} {
		t.Run(test.answer.Message, func(t *testing.T) {
			topic := "answer-" + test.answer.Message
			k.Topic(topic, nil)
			p := publisher(t, k.URL("", ""), 4*time.Second)
			fault := k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: test.answer, Count: -1})
			defer fault.Remove()
			began := time.Now()
			expect(t, publishAll(t.Context(), p, messages(1, topic, "k")), test.want)
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("the publish took %v", took)
			}
			if p.Ready() != nil {
				t.Errorf("a single topic without room for messages means %v", p.Ready())
			}
			fault.Remove()
			awaitAcked(t, p, topic)
		})
	}
}

// An answer that refuses no message, and stores none, comes soon. The next message tries the topic at once, although
// the probes of a topic without answers have pauses.
func TestAnswersBeginNoPause(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	p, err := kafka.New(kafka.Config{
		URL: k.URL("", ""), ConfirmTimeout: 10 * time.Second, ProbePauses: backoff.Steps{time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer closePublisher(t, p, 15*time.Second)
	ready(t, p)
	for answer, want := range map[*kerr.Error]publish.Outcome{
		kerr.RequestTimedOut: publish.Unsure, kerr.NotEnoughReplicas: publish.Unsent,
	} {
		fault := k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: answer, Count: -1})
		expect(t, publishAll(t.Context(), p, messages(1, "t", "k")), want)
		fault.Remove()
		awaitAcked(t, p, "t")
	}
}

// The cluster stores a batch and the answer is lost. The client asks again with the same sequence number, and the
// cluster knows the batch.
func TestLostAnswerStoresOnce(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	p := publisher(t, k.URL("", ""), 10*time.Second)
	expect(t, publishAll(t.Context(), p, messages(1, "t", "k")), publish.Acked)
	k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 1})
	batch := messages(50, "t", "k")
	for i := range batch {
		batch[i].Name.ID = fmt.Sprint("x", i)
	}
	expect(t, publishAll(t.Context(), p, batch), publish.Acked)
	read(t, k, "t", 51)
}

// The requests ask for the acknowledgement of all replicas and come from an idempotent writer.
func TestWritesWithAllAcksAndSequence(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	var mu sync.Mutex
	var wrong []string
	seen := 0
	k.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1,
		When: func(request kmsg.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			produce, _ := request.(*kmsg.ProduceRequest)
			if produce.Acks != -1 {
				wrong = append(wrong, fmt.Sprint("acks ", produce.Acks))
			}
			for _, topic := range produce.Topics {
				for _, partition := range topic.Partitions {
					seen++
					var batch kmsg.RecordBatch
					if err := batch.ReadFrom(partition.Records); err != nil || batch.ProducerID < 0 || batch.FirstSequence < 0 {
						wrong = append(wrong, fmt.Sprint("producer ", batch.ProducerID, " sequence ", batch.FirstSequence, err))
					}
				}
			}
			return true
		},
	})
	p := publisher(t, k.URL("", ""), 10*time.Second)
	expect(t, publishAll(t.Context(), p, messages(100, "t", "k")), publish.Acked)
	mu.Lock()
	defer mu.Unlock()
	if len(wrong) > 0 || seen == 0 {
		t.Errorf("%d batches: %v", seen, wrong)
	}
}

// A cluster that would create topics creates none for a message with a misspelled topic.
func TestNoTopicIsCreated(t *testing.T) {
	t.Parallel()
	k := plain(t, kfake.AllowAutoTopicCreation())
	p := publisher(t, k.URL("", ""), 10*time.Second)
	expect(t, publishAll(t.Context(), p, messages(10, "misspelled", "k")), publish.Refused)
	if k.Fake.TopicInfo("misspelled") != nil {
		t.Error("the topic was created")
	}
}

// A topic that is made after its message was refused takes the next copy.
func TestNewTopicIsFoundSoon(t *testing.T) {
	t.Parallel()
	k := plain(t)
	p := publisher(t, k.URL("", ""), 10*time.Second)
	expect(t, publishAll(t.Context(), p, messages(1, "late", "k")), publish.Refused)
	k.Topic("late", nil)
	servers.Eventually(t, 10*time.Second, "the message is acknowledged", func() bool {
		return publishAll(t.Context(), p, messages(1, "late", "k"))[0].Outcome == publish.Acked
	})
}

// A topic that takes no messages keeps no others waiting, and does not make the publisher unready.
func TestBlockedTopicDelaysNoOther(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("good", nil)
	k.Topic("bad", nil)
	p := publisher(t, k.URL("", ""), 4*time.Second)
	k.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Topic: "bad", Err: kerr.NotEnoughReplicas, Count: -1,
	})
	batch := append(messages(500, "bad", "k"), messages(10, "good", "k")...)
	for i := range batch {
		batch[i].Name.ID = fmt.Sprint(i)
	}
	for round := range 5 {
		var good time.Duration
		began := time.Now()
		results := make([]publish.Result, len(batch))
		p.Publish(t.Context(), batch, func(places []int, some []publish.Result) {
			for n, i := range places {
				results[i] = some[n]
				if i >= 500 {
					good = time.Since(began)
				}
			}
		})
		expect(t, results[:500], publish.Unsent)
		expect(t, results[500:], publish.Acked)
		if good > 2*time.Second {
			t.Errorf("round %d: the good messages took %v", round, good)
		}
		if err := p.Ready(); err != nil {
			t.Errorf("round %d: %v", round, err)
		}
	}
}

// While no topic takes messages the publisher is not ready, whether the messages are unsent or unsure.
func TestMissingTopicIsNotReady(t *testing.T) {
	t.Parallel()
	for _, answer := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.NotLeaderForPartition, kerr.KafkaStorageError} {
		t.Run(answer.Message, func(t *testing.T) {
			t.Parallel()
			k := plain(t)
			k.Topic("t", nil)
			p := publisher(t, k.URL("", ""), 4*time.Second)
			fault := k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: answer, Count: -1})
			servers.Eventually(t, time.Minute, "the publisher is not ready", func() bool {
				publishAll(t.Context(), p, messages(1, "t", "k"))
				return errors.Is(p.Ready(), publish.ErrBlocked)
			})
			fault.Remove()
			awaitAcked(t, p, "t")
		})
	}
}

// Partitions move to other brokers under load: each message is acknowledged, and stored once.
func TestMovingLeadersLoseNothing(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	p := publisher(t, k.URL("", ""), 20*time.Second)
	const rounds, each = 20, 100
	for round := range rounds {
		var group sync.WaitGroup
		group.Go(func() { k.Fake.ShufflePartitionLeaders() })
		batch := messages(each, "t", "")
		for i := range batch {
			batch[i].Name.ID = fmt.Sprintf("%d-%d", round, i)
			batch[i].RoutingKey = fmt.Sprint(i)
		}
		expect(t, publishAll(t.Context(), p, batch), publish.Acked)
		group.Wait()
	}
	ids := map[string]int{}
	for _, m := range read(t, k, "t", rounds*each) {
		ids[m.ID]++
	}
	if len(ids) != rounds*each {
		t.Errorf("%d different messages, want %d", len(ids), rounds*each)
	}
}

// A cluster that lets the user write nothing uses up no attempt: every message would.
func TestMissingWriterPermissionIsAnOutage(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	fault := k.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.InitProducerID}, TopLevel: true, Err: kerr.ClusterAuthorizationFailed, Count: -1,
	})
	p := publisher(t, k.URL("", ""), 4*time.Second)
	expect(t, publishAll(t.Context(), p, messages(10, "t", "k")), publish.Unsent)
	health, err := kafka.Examine(t.Context(), kafka.Config{URL: k.URL("", "")})
	if err != nil || health.Trouble == nil {
		t.Errorf("Examine says %+v, %v", health, err)
	}
	fault.Remove()
	awaitAcked(t, p, "t")
}

func TestWindowBoundsMessagesInFlight(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	p, err := kafka.New(kafka.Config{URL: k.URL("", ""), ConfirmTimeout: 2 * time.Second, Window: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer closePublisher(t, p, 15*time.Second)
	ready(t, p)
	expect(t, publishAll(t.Context(), p, messages(100, "t", "k")), publish.Acked)
	resume := k.Hang()
	results := publishAll(t.Context(), p, messages(100, "t", "k"))
	resume()
	if counts := count(results); counts[publish.Unsent] < 90 || counts[publish.Unsure] > 10 {
		t.Errorf("got %v", counts)
	}
}
