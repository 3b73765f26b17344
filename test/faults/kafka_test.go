package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/consumer"
	kafkaconsumer "github.com/msghandler/msghandler/consumer/kafka"
	"github.com/msghandler/msghandler/internal/kafkaconn"
	"github.com/msghandler/msghandler/test/fakekafka"
)

// kafkaStream is a cluster of kfake with the load's topic, whose name is the load's exchange.
type kafkaStream struct{ cluster *fakekafka.Cluster }

// partitions is how many a topic of fakekafka has.
const partitions = 4

// onKafka sends the load's messages to Kafka.
func onKafka() options {
	return options{stream: func(w *world) stream {
		cluster := fakekafka.Start(w.t, nil)
		cluster.Topic(exchange, nil)
		return &kafkaStream{cluster: cluster}
	}}
}

func (s *kafkaStream) url() string { return s.cluster.URL("", "") }

func (*kafkaStream) asciiHeaders() bool { return false }

// consume notes each record of the topic once, and has a group of the SDK's consumers let the messages have their
// effects: a group may see a record twice without a flag.
func (s *kafkaStream) consume(w *world) {
	w.t.Helper()
	s.noteRecords(w)
	effect := w.effect()
	w.runs(2, func(consuming func()) (func(context.Context) error, error) {
		c, err := kafkaconsumer.New(kafkaconsumer.Config{
			URL: s.url(), Group: queue, Topics: []string{exchange}, Concurrency: partitions,
			Retry: []time.Duration{200 * time.Millisecond}, Consuming: consuming, Logger: quiet(),
		})
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) error {
			return c.Run(ctx, consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
				if isLast(m.Key()) {
					return nil
				}
				return effect.Handle(ctx, m)
			}))
		}, nil
	})
}

// noteRecords reads all partitions from their beginning, until the test ends.
func (s *kafkaStream) noteRecords(w *world) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Hosts...), kgo.ConsumeTopics(exchange),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				m := kafkaconn.Read(r)
				w.got(m.Producer+"/"+m.ID, Copy{Content: NewContent(m.Topic, m.Key, m.Headers, m.Body), Attempt: m.Attempt})
			})
		}
	})
	w.t.Cleanup(func() { cancel(); reading.Wait(); client.Close() })
	w.consumed(exchange, partitions)
}

// empty waits for a last record of each partition.
func (s *kafkaStream) empty(w *world) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Hosts...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.must(err)
	defer client.Close()
	for partition := range int32(partitions) {
		last := kafkaconn.Message{Topic: exchange, Producer: lastProducer, ID: fmt.Sprint(partition), Attempt: 1}
		record := last.Record()
		record.Partition = partition
		w.must(client.ProduceSync(w.t.Context(), record).FirstErr())
	}
	w.lastArrived(partitions)
}

// killKafka ends the brokers with publishes under way, and starts them again with their data.
func killKafka(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*kafkaStream](w)
	pause(ctx, time.Second)
	w.ledger.Fault("nothing reaches the cluster or comes back")
	s.cluster.Hang()
	wait(500 * time.Millisecond)
	w.ledger.Fault("the brokers end")
	s.cluster.Kill()
	w.degraded(isDegraded)
	s.cluster.Restart()
	w.ledger.Fault("the brokers are back")
	w.allReady()
}

// hangKafka lets nothing pass for longer than a publish waits for its answer.
func hangKafka(ctx context.Context, w *world, _ *rand.Rand) {
	w.silent(ctx, onStream[*kafkaStream](w).cluster.Hang)
}

// cutKafka closes all connections at short intervals, for as long as the load lasts.
func cutKafka(ctx context.Context, w *world, random *rand.Rand) {
	s := onStream[*kafkaStream](w)
	for ctx.Err() == nil {
		pause(ctx, time.Duration(200+random.IntN(1000))*time.Millisecond)
		w.ledger.Fault("all connections to Kafka are closed")
		restore := s.cluster.Cut()
		wait(50 * time.Millisecond)
		restore()
	}
	w.allReady()
}

// shrinkKafka lets the topic take only small messages for a while.
func shrinkKafka(ctx context.Context, w *world, _ *rand.Rand) {
	largest := func(bytes string) func() {
		return func() { onStream[*kafkaStream](w).cluster.Configure(exchange, "max.message.bytes", bytes) }
	}
	w.refusing(ctx, largest("500"), largest("1048588"))
}
