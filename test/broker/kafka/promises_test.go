package kafka_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/msghandler/msghandler/broker/kafka"
	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/fakekafka"
)

func TestPromises(t *testing.T) {
	publishtest.Run(t, &promisedBroker{t: t, cluster: secured(t), readers: map[string]*kgo.Client{}})
}

// secured is a cluster with logins: admin may do everything, limited may write to topics that begin with promise.
func secured(t testing.TB) *fakekafka.Cluster {
	t.Helper()
	return fakekafka.Start(t, []kfake.Opt{
		kfake.EnableSASL(), kfake.EnableACLs(),
		kfake.Superuser("SCRAM-SHA-256", "admin", "its-secret"),
		kfake.User("PLAIN", "limited", "its-secret", kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: "promise", Pattern: kmsg.ACLResourcePatternTypePrefixed,
			Operation: kmsg.ACLOperationWrite, Allow: true,
		}),
	}, kgo.SASL(scram.Auth{User: "admin", Pass: "its-secret"}.AsSha256Mechanism()))
}

// promisedBroker is the fixture of package publishtest.
type promisedBroker struct {
	// t outlives the tests of the suite, and so do the readers.
	t       *testing.T
	cluster *fakekafka.Cluster
	readers map[string]*kgo.Client
}

func (b *promisedBroker) Open(t *testing.T, confirmTimeout time.Duration) publish.Client {
	t.Helper()
	return open(t, b.cluster.URL("admin:its-secret@", "?sasl=scram-sha-256"), confirmTimeout)
}

func open(t testing.TB, url string, confirmTimeout time.Duration) *kafka.Publisher {
	t.Helper()
	p, err := kafka.New(kafka.Config{
		URL: url, ConfirmTimeout: confirmTimeout, WriteTimeout: time.Second,
		Logger: publishtest.Logger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (b *promisedBroker) Target(t *testing.T, name string) publishtest.Target {
	t.Helper()
	b.cluster.Topic(name, nil)
	return publishtest.Target{Exchange: name, Keys: []string{"order-1", "order-2", "order-3"}}
}

func (b *promisedBroker) DeadLetters(t *testing.T, origin publishtest.Target) publishtest.Target {
	t.Helper()
	return b.Target(t, origin.Exchange+".dead")
}

func (b *promisedBroker) Refusals(t *testing.T, target publishtest.Target) []publishtest.Refusal {
	t.Helper()
	b.cluster.Topic("forbidden", nil)
	b.cluster.Configure(target.Exchange, "max.message.bytes", "50000")
	limited := open(t, b.cluster.URL("limited:its-secret@", ""), 20*time.Second)
	t.Cleanup(func() { closePublisher(t, limited, 15*time.Second) })
	return []publishtest.Refusal{
		{Name: "unknown topic", Spoil: func(m *publish.Message) { m.Exchange = "no-such-topic" }},
		{Name: "no name of a topic", Spoil: func(m *publish.Message) { m.Exchange = "no such topic" }},
		{Name: "too large for the topic", Spoil: func(m *publish.Message) { m.Body = noise(60_000) }},
		{Name: "too large for the client", Spoil: func(m *publish.Message) { m.Body = noise(2 << 20) }},
		{Name: "no permission", Spoil: func(m *publish.Message) { m.Exchange = "forbidden" }, Publisher: limited},
	}
}

// noise is a body that does not compress.
func noise(size int) []byte {
	body := make([]byte, size)
	_, _ = rand.Read(body) // never fails
	return body
}

// Read polls until a poll finds nothing.
func (b *promisedBroker) Read(t *testing.T, target publishtest.Target) (records []publishtest.Record) {
	t.Helper()
	reader := b.reader(t, target.Exchange)
	for {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		fetches := reader.PollFetches(ctx)
		cancel()
		if fetches.NumRecords() == 0 {
			return records
		}
		fetches.EachRecord(func(r *kgo.Record) { records = append(records, record(r)) })
	}
}

func (b *promisedBroker) reader(t *testing.T, topic string) *kgo.Client {
	t.Helper()
	if b.readers[topic] == nil {
		reader, err := kgo.NewClient(
			kgo.SeedBrokers(b.cluster.Hosts...), kgo.ConsumeTopics(topic), kgo.FetchMaxWait(50*time.Millisecond),
			kgo.SASL(scram.Auth{User: "admin", Pass: "its-secret"}.AsSha256Mechanism()),
			kgo.MetadataMinAge(50*time.Millisecond),
			kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		)
		if err != nil {
			t.Fatal(err)
		}
		b.t.Cleanup(reader.Close)
		b.readers[topic] = reader
	}
	return b.readers[topic]
}

func (b *promisedBroker) Remove(t *testing.T, target publishtest.Target) (makeAgain func()) {
	t.Helper()
	if reader := b.readers[target.Exchange]; reader != nil {
		reader.Close()
		delete(b.readers, target.Exchange)
	}
	if err := b.cluster.Fake.DeleteTopic(target.Exchange); err != nil {
		t.Fatal(err)
	}
	return func() { b.cluster.Topic(target.Exchange, nil) }
}

func record(r *kgo.Record) publishtest.Record {
	m := kafkaconn.Read(r)
	return publishtest.Record{
		Name: publish.Name{Producer: m.Producer, ID: m.ID}, Exchange: m.Topic, RoutingKey: m.Key,
		ContentType: m.ContentType, Body: m.Body, Timestamp: m.Time, Attempt: m.Attempt, Headers: m.Headers,
	}
}

// Block has each partition answer as one whose replicas are not there.
func (b *promisedBroker) Block(t *testing.T) (unblock func()) {
	t.Helper()
	fault := b.cluster.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1,
	})
	return fault.Remove
}

func (b *promisedBroker) Hang(*testing.T) (resume func()) { return b.cluster.Hang() }

func (b *promisedBroker) Cut(*testing.T) (restore func()) { return b.cluster.Cut() }

func (b *promisedBroker) Kill(*testing.T) { b.cluster.Kill() }

func (b *promisedBroker) Restart(*testing.T) { b.cluster.Restart() }
