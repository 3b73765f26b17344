package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// The cluster stores a message and does not say so. The client writes the message again, and the cluster refuses the
// repeat. The topic has a copy, so the message is neither unsent nor refused.
func TestRefusedRepeatForgetsNoCopy(t *testing.T) {
	t.Parallel()
	k := plain(t)
	for _, refusal := range []*kerr.Error{
		kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, kerr.MessageTooLarge, kerr.PolicyViolation,
	} {
		t.Run(refusal.Message, func(t *testing.T) {
			topic := "doubt-" + refusal.Message
			k.Topic(topic, nil)
			p := publisher(t, k.URL("", ""), 4*time.Second)
			defer k.Fake.Fault(
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.RequestTimedOut, Count: 1},
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: refusal, Count: -1},
			).Remove()
			expect(t, publishAll(t.Context(), p, messages(1, topic, "k")), publish.Unsure)
			read(t, k, topic, 1)
		})
	}
}

// A leader stores a message, loses the partition or its disk while the message waits for the other replicas, and
// answers that the write has failed. The next leader cannot take the repeat. The topic may have a copy.
func TestRefusalAfterLostLeaderIsUnsure(t *testing.T) {
	t.Parallel()
	k := plain(t)
	for _, lost := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.KafkaStorageError} {
		t.Run(lost.Message, func(t *testing.T) {
			topic := "lost-" + lost.Message
			k.Topic(topic, nil)
			p := publisher(t, k.URL("", ""), 4*time.Second)
			defer k.Fake.Fault(
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: lost, Count: 1},
				kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1},
			).Remove()
			expect(t, publishAll(t.Context(), p, messages(1, topic, "k")), publish.Unsure)
		})
	}
}

// The connection ends before the answer to a message. The client writes the message again, and the cluster refuses the
// repeat.
func TestRefusalAfterLostConnectionIsUnsure(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	p := publisher(t, k.URL("", ""), 10*time.Second)
	for _, refusal := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, kerr.MessageTooLarge} {
		awaitAcked(t, p, "t")
		k.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
			return nil, errors.New("lost"), true // closes the connection
		})
		fault := k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: refusal, Count: -1})
		expect(t, publishAll(t.Context(), p, messages(1, "t", "k")), publish.Unsure)
		fault.Remove()
	}
}

// A lookup of the topic fails while a broker has the message and has not answered. The message is not refused.
func TestFailedLookupForgetsNoOpenRequest(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	p := publisher(t, k.URL("", ""), 10*time.Second)
	expect(t, publishAll(t.Context(), p, messages(1, "t", "k")), publish.Acked)
	received := make(chan struct{})
	k.Fake.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		close(received)
		return nil, nil, true // no answer
	})
	results := make(chan []publish.Result)
	go func() { results <- publishAll(t.Context(), p, messages(1, "t", "k")) }()
	<-received
	defer k.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Metadata}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: -1,
	}).Remove()
	expect(t, publishAll(t.Context(), p, messages(1, "unknown", "k")), publish.Refused) // looks up all topics
	expect(t, <-results, publish.Unsure)
}

// A refused batch of records fails others that a broker may have stored. So a message that is written a second time,
// and does not arrive, is not unsent.
func TestSecondWriteForgetsNoFirstCopy(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("t", nil)
	p := publisher(t, k.URL("", ""), 4*time.Second)
	for _, second := range []*kerr.Error{kerr.NotEnoughReplicas, kerr.TopicAuthorizationFailed, kerr.RequestTimedOut} {
		awaitAcked(t, p, "t")
		faults := k.Fake.Fault(
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: 1},
			kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: second, Count: -1},
		)
		expect(t, publishAll(t.Context(), p, messages(1, "t", "k")), publish.Unsure)
		faults.Remove()
	}
}
