package e2e

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// topicReader counts the records of a topic by their values.
type topicReader struct {
	mu      sync.Mutex
	records map[string]*kgo.Record
	copies  int
}

func readTopic(t *testing.T, cluster *fakekafka.Cluster, topic string) *topicReader {
	t.Helper()
	_, hosts, _ := strings.Cut(cluster.URL("", ""), "://")
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(hosts, ",")...), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := &topicReader{records: map[string]*kgo.Record{}}
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			client.PollFetches(ctx).EachRecord(r.add)
		}
	})
	t.Cleanup(func() {
		cancel()
		reading.Wait()
		client.Close()
	})
	return r
}

func (r *topicReader) add(record *kgo.Record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.records[string(record.Value)] != nil {
		r.copies++
	}
	r.records[string(record.Value)] = record
}

func (r *topicReader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.records)
}

// toKafka sends and submits n messages for the broker log.
func toKafka(p *plainProducer, from, n int, topic string) (ids []string) {
	p.t.Helper()
	var messages []*pb.Message
	for i := range n {
		id := fmt.Sprintf("log-%06d", from+i)
		ids = append(ids, id)
		messages = append(messages, &pb.Message{
			Id: id, Broker: "log", Exchange: topic, RoutingKey: "key-" + id, Body: []byte(id),
		})
	}
	p.sendHalves(time.Minute, messages...)
	if _, err := p.api.SubmitAll(p.t.Context(), &pb.SubmitAllRequest{Producer: p.name, Ids: ids}); err != nil {
		p.t.Fatal(err)
	}
	return ids
}

// TestCoordinatorServesRabbitMQAndKafka: the built coordinator publishes to both; Kafka is cut off, and RabbitMQ
// gets its messages meanwhile; a topic that there is not makes its messages DEAD.
func TestCoordinatorServesRabbitMQAndKafka(t *testing.T) {
	cluster := fakekafka.Start(t, nil)
	cluster.Topic("orders", nil)
	w := &brokerWorld{world: newWorld(t), sent: map[string]int{}}
	w.startCoordinators(1, "MSGHANDLER_BROKERS_LOG_URL="+cluster.URL("", ""), "MSGHANDLER_SEND_BACKOFF=100ms,200ms")
	w.producer = newPlainProducer(t, "orders", w.coordinators[0].grpc)
	w.deliveries = consumeFrom(t, w.amqp)
	reader := readTopic(t, cluster, "orders")

	toKafka(w.producer, 0, 500, "orders")
	w.burst(500)
	servers.Eventually(t, patience, "the topic has its records", func() bool { return reader.count() == 500 })
	if got := reader.records["log-000007"]; string(got.Key) != "key-log-000007" {
		t.Errorf("the record has the key %s", got.Key)
	}

	restore := cluster.Cut()
	servers.Eventually(t, patience, "the broker log is said to take no messages", func() bool {
		return w.metric(`msghandler_broker_up{broker="log"}`) == "0"
	})
	toKafka(w.producer, 500, 300, "orders")
	t.Logf("while Kafka is cut off, 500 messages for RabbitMQ take %s", w.burst(500))
	out, _ := w.run("stats", "--output", "json")
	if !strings.Contains(out, `"kind": "kafka"`) {
		t.Errorf("stats says %s", out)
	}
	restore()
	servers.Eventually(t, patience, "the topic has all of its records", func() bool { return reader.count() == 800 })
	w.drained(time.Minute)

	id := toKafka(w.producer, 800, 1, "nowhere")[0]
	if state := w.producer.submit(id, pb.Wait_WAIT_DONE); state != pb.State_STATE_DEAD {
		t.Errorf("a message for a missing topic is %v", state)
	}
	if reader.copies > 0 {
		t.Logf("%d copies in the topic", reader.copies)
	}
}
