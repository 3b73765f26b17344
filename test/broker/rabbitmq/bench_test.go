package rabbitmq_test

import (
	"context"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
)

// BenchmarkPublish measures confirmed messages of 1 KiB to a quorum queue, in batches of 200 from five callers, next to
// a loop over the library alone with the same window.
func BenchmarkPublish(b *testing.B) {
	url := servers.RabbitMQ(b).URL
	d := declare(b, url)
	d.exchange("e")
	d.queue("q", "e", "k", amqp.Table{"x-queue-type": "quorum"})
	batch := messages(publishtest.BenchmarkBatch, "e", "k")
	for i := range batch {
		batch[i].Body = make([]byte, 1<<10)
	}
	b.Run("publisher", func(b *testing.B) {
		p := publisher(b, rabbitmq.Config{URL: url, ConfirmTimeout: time.Minute})
		publishtest.Benchmark(b, func() {
			if n := count(publishAll(context.Background(), p, batch))[publish.Acked]; n != publishtest.BenchmarkBatch {
				b.Errorf("%d acknowledged", n)
			}
		})
	})
	b.Run("library", func(b *testing.B) {
		channel := declare(b, url).channel
		if err := channel.Confirm(false); err != nil {
			b.Fatal(err)
		}
		publishtest.Benchmark(b, func() { raw(b, channel, batch) })
	})
}

// raw publishes a batch with nothing but the library.
func raw(b *testing.B, channel *amqp.Channel, batch []publish.Message) {
	confirmations := make([]*amqp.DeferredConfirmation, len(batch))
	for i := range batch {
		m := &batch[i]
		var err error
		confirmations[i], err = channel.PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, true, false, amqp.Publishing{
			DeliveryMode: amqp.Persistent, MessageId: m.Name.ID, AppId: m.Name.Producer, Body: m.Body,
			Headers: amqp.Table{"msghandler-attempt": int64(1)},
		})
		if err != nil {
			b.Error(err)
			return
		}
	}
	for _, c := range confirmations {
		if !c.Wait() {
			b.Error("not acknowledged")
		}
	}
}
