package faults

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/broker/kafka/kafkaconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// kafkaStream is a cluster of kfake with the load's topic, whose name is the load's exchange.
type kafkaStream struct {
	cluster *fakekafka.Cluster
	// consumed names the topics that have consumers.
	consumed []string
}

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
func (s *kafkaStream) consume(w *world) { s.consumeFrom(w, exchange) }

// consumeFrom consumes a topic.
func (s *kafkaStream) consumeFrom(w *world, topic string) {
	w.t.Helper()
	s.noteRecords(w, topic)
	effect := w.effect()
	w.runs(2, func(consuming func()) (func(context.Context) error, error) {
		c, err := kafkaconsumer.New(kafkaconsumer.Config{
			URL: s.url(), Group: kafkaGroup(topic), Topics: []string{topic}, Concurrency: partitions,
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

// kafkaGroup is the group of a topic's consumers.
func kafkaGroup(topic string) string { return queue + "." + topic }

func (s *kafkaStream) watch(w *world) (noting bool) {
	s.noteRecords(w, exchange)
	return true
}

// forget ends the membership of a consumer that died. By itself the group would wait for the end of the session, which
// is 45 s.
func (s *kafkaStream) forget(w *world, consumer string) {
	group := s.cluster.Fake.GroupInfo(kafkaGroup(exchange))
	if group == nil {
		return // the consumer died before it joined
	}
	request := kmsg.NewPtrLeaveGroupRequest()
	request.Group = group.Group
	for i := range group.Members {
		if group.Members[i].ClientID == consumer {
			member := kmsg.NewLeaveGroupRequestMember()
			member.MemberID = group.Members[i].MemberID
			request.Members = append(request.Members, member)
		}
	}
	if _, err := request.RequestWith(context.Background(), s.cluster.Admin); err != nil {
		w.t.Errorf("end the membership of %s: %v", consumer, err)
	}
}

// noteRecords reads all partitions from their beginning, until the test ends. kfake sends a reader back to the
// beginning when a leader has moved and nothing was written since; the reader notes no record twice.
func (s *kafkaStream) noteRecords(w *world, topic string) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Hosts...), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	w.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	noted := map[int32]int64{}
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(func(r *kgo.Record) {
				if r.Offset < noted[r.Partition] {
					return
				}
				noted[r.Partition] = r.Offset + 1
				m := kafkaconn.Read(r)
				content := NewContent(m.Topic, m.Key, m.Headers, m.Body)
				w.got(m.Producer+"/"+m.ID, Copy{Content: content, Attempt: m.Attempt})
			})
		}
	})
	w.t.Cleanup(func() { cancel(); reading.Wait(); client.Close() })
	w.consumed(topic, partitions)
	s.consumed = append(s.consumed, topic)
}

// empty waits for a last record of each partition.
func (s *kafkaStream) empty(w *world) {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Hosts...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	w.must(err)
	defer client.Close()
	for _, topic := range s.consumed {
		for partition := range int32(partitions) {
			id := fmt.Sprint(topic, ".", partition)
			last := kafkaconn.Message{Topic: topic, Producer: lastProducer, ID: id, Attempt: 1}
			record := last.Record()
			record.Partition = partition
			w.must(client.ProduceSync(w.t.Context(), record).FirstErr())
		}
	}
	w.lastArrived(partitions * len(s.consumed))
	if w.business != nil {
		s.handled(w)
	}
}

// handled waits until the group has committed every record: consumers that die take their time.
func (s *kafkaStream) handled(w *world) {
	w.t.Helper()
	servers.Eventually(w.t, patience, "the group has committed every record", func() bool {
		group := s.cluster.Fake.GroupInfo(kafkaGroup(exchange))
		return group != nil && !slices.ContainsFunc(s.cluster.Fake.PartitionInfos(exchange),
			func(p *kfake.PartitionInfo) bool {
				return group.Commits[exchange][p.Partition].Offset < p.HighWatermark
			})
	})
}

func (s *kafkaStream) makeDeadLetters(*world) { s.cluster.Topic(deadLetters, nil) }

func (*kafkaStream) unknown() string { return "UNKNOWN_TOPIC_OR_PARTITION" }

func (s *kafkaStream) serve(w *world, topic string) {
	s.cluster.Topic(topic, nil)
	s.consumeFrom(w, topic)
}

func (s *kafkaStream) deadLetters(w *world) map[string]string {
	w.t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.cluster.Hosts...), kgo.ConsumeTopics(deadLetters))
	w.must(err)
	defer client.Close()
	left, reasons := int64(0), map[string]string{}
	for _, partition := range s.cluster.Fake.PartitionInfos(deadLetters) {
		left += partition.HighWatermark
	}
	for left > 0 && w.t.Context().Err() == nil {
		client.PollFetches(w.t.Context()).EachRecord(func(r *kgo.Record) {
			m := kafkaconn.Read(r)
			reasons[m.Producer+"/"+m.ID] = m.Headers[deadReason]
			left--
		})
	}
	return reasons
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

// withoutRoomOnKafka lets the partitions have too few replicas.
func withoutRoomOnKafka(ctx context.Context, w *world, _ *rand.Rand) {
	var full *kfake.FaultHandle
	w.withoutRoom(ctx, func() {
		full = onStream[*kafkaStream](w).cluster.Fake.Fault(writesFail(kerr.NotEnoughReplicas))
	}, func() { full.Remove() })
}

// forbidKafka takes the permission to write to the topic from the coordinators and gives the permission back.
func forbidKafka(ctx context.Context, w *world, _ *rand.Rand) {
	var forbidden *kfake.FaultHandle
	w.refusing(ctx, func() {
		forbidden = onStream[*kafkaStream](w).cluster.Fake.Fault(writesFail(kerr.TopicAuthorizationFailed))
	}, func() { forbidden.Remove() })
}

// writesFail has all partitions of the load's topic refuse each batch of records.
func writesFail(answer *kerr.Error) kfake.Fault {
	return kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: exchange, Err: answer, Count: -1}
}

// silenceKafka makes all connections swallow everything and stay open, until the coordinators have found out.
func silenceKafka(ctx context.Context, w *world, _ *rand.Rand) {
	s := onStream[*kafkaStream](w)
	pause(ctx, time.Second)
	w.ledger.Fault("the connections with Kafka fall silent")
	began := time.Now()
	restore := s.cluster.Silence()
	w.degraded(isDegraded)
	w.t.Logf("found out after %v", time.Since(began).Round(10*time.Millisecond))
	restore()
	w.ledger.Fault("new connections work")
	w.allReady()
}

// moveLeaders moves all partitions to other brokers, again and again, for as long as the load lasts. Messages go on
// with each set of leaders.
func moveLeaders(ctx context.Context, w *world, _ *rand.Rand) {
	fake := onStream[*kafkaStream](w).cluster.Fake
	for ctx.Err() == nil {
		for partition := range int32(partitions) {
			leader := (fake.LeaderFor(exchange, partition) + 1) % fakekafka.Brokers
			w.must(fake.MoveTopicPartition(exchange, partition, leader))
		}
		w.ledger.Fault("each partition has another leader")
		w.messagesGoOn(20)
	}
}
