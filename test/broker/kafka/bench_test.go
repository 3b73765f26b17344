package kafka_test

import (
	"context"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
)

// BenchmarkPublish measures acknowledged messages of 1 KiB to a topic of four partitions, in batches of 200 from five
// callers, next to the client alone with acks=all and the same window, on the same cluster. The cluster is kfake: the
// figures compare the two, and say nothing about a Kafka.
func BenchmarkPublish(b *testing.B) {
	k := plain(b)
	k.Topic("t", nil)
	batch := messages(publishtest.BenchmarkBatch, "t", "k")
	for i := range batch {
		batch[i].Body = make([]byte, 1<<10)
		batch[i].RoutingKey = batch[i].Name.ID
	}
	b.Run("publisher", func(b *testing.B) {
		p := publisher(b, k.URL("", ""), time.Minute)
		publishtest.Benchmark(b, func() {
			if n := count(publishAll(context.Background(), p, batch))[publish.Acked]; n != publishtest.BenchmarkBatch {
				b.Errorf("%d acknowledged", n)
			}
		})
	})
	b.Run("library", func(b *testing.B) {
		client, err := kgo.NewClient(kgo.SeedBrokers(k.Hosts...), kgo.MaxBufferedRecords(1000), kgo.ProducerLinger(0))
		if err != nil {
			b.Fatal(err)
		}
		defer client.Close()
		publishtest.Benchmark(b, func() { raw(b, client, batch) })
	})
}

// raw publishes a batch with nothing but the library. The records carry the same headers.
func raw(b *testing.B, client *kgo.Client, batch []publish.Message) {
	records := make([]*kgo.Record, len(batch))
	for i := range batch {
		m := &batch[i]
		message := kafkaconn.Message{
			ID: m.Name.ID, Producer: m.Name.Producer, Topic: m.Exchange, Key: m.RoutingKey, Body: m.Body, Attempt: 1,
			Time: m.DueAt,
		}
		records[i] = message.Record()
	}
	if err := client.ProduceSync(context.Background(), records...).FirstErr(); err != nil {
		b.Error(err)
	}
}
