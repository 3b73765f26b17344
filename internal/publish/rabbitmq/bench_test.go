package rabbitmq_test

import (
	"context"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/rabbitmq"
	"github.com/msghandler/msghandler/test/servers"
)

const benchBatch = 200

// BenchmarkPublish measures confirmed messages of 1 KiB to a quorum queue, in batches of 200 from five callers, next to
// a loop over the library alone with the same window.
func BenchmarkPublish(b *testing.B) {
	url := servers.RabbitMQ(b).URL
	d := declare(b, url)
	d.exchange("e")
	d.queue("q", "e", "k", amqp.Table{"x-queue-type": "quorum"})
	batch := messages(benchBatch, "e", "k")
	for i := range batch {
		batch[i].Body = make([]byte, 1<<10)
	}
	b.Run("publisher", func(b *testing.B) {
		p := publisher(b, rabbitmq.Config{URLs: []string{url}, ConfirmTimeout: time.Minute})
		perMessage(b, 5, func() {
			if n := count(publish(context.Background(), p, batch))[halfmsg.Acked]; n != benchBatch {
				b.Errorf("%d acknowledged", n)
			}
		})
	})
	b.Run("library", func(b *testing.B) {
		channel := declare(b, url).channel
		if err := channel.Confirm(false); err != nil {
			b.Fatal(err)
		}
		perMessage(b, 5, func() { raw(b, channel, batch) })
	})
}

// perMessage runs a batch as often as it takes for b.N messages, from several callers at once.
func perMessage(b *testing.B, callers int, do func()) {
	turns := make(chan struct{})
	var group sync.WaitGroup
	for range callers {
		group.Go(func() {
			for range turns {
				do()
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; sent += benchBatch {
		turns <- struct{}{}
	}
	close(turns)
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// raw publishes a batch with nothing but the library.
func raw(b *testing.B, channel *amqp.Channel, batch []halfmsg.Publishing) {
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
