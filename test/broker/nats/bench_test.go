package nats_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
)

// BenchmarkPublish measures acknowledged messages of 1 KiB to a stream in files, in batches of 200 from five callers,
// next to a loop over the library's PublishAsync alone, with as many messages in flight, to the same server. Both send
// a Nats-Msg-Id.
func BenchmarkPublish(b *testing.B) {
	server := servers.NATS(b)
	a := connect(b, server.URL)
	a.make(jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Storage: jetstream.FileStorage})
	var ids atomic.Int64
	b.Run("publisher", func(b *testing.B) {
		p := publisher(b, nats.Config{URL: server.URL, ConfirmTimeout: time.Minute})
		publishtest.Benchmark(b, func() {
			results := publishAll(context.Background(), p, benchMessages(&ids))
			if n := count(results)[publish.Acked]; n != len(results) {
				b.Errorf("%d acknowledged", n)
			}
		})
	})
	b.Run("library", func(b *testing.B) {
		conn, err := client.Connect(server.URL)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(1000))
		if err != nil {
			b.Fatal(err)
		}
		publishtest.Benchmark(b, func() { bare(b, js, benchMessages(&ids)) })
	})
}

// benchMessages is a batch whose ids are new: a duplicate would cost the server less.
func benchMessages(ids *atomic.Int64) []publish.Message {
	batch := messages(publishtest.BenchmarkBatch, "ORDERS", "orders.x")
	for i := range batch {
		batch[i].Name.ID = fmt.Sprint(ids.Add(1))
		batch[i].Body = benchBody
	}
	return batch
}

var benchBody = make([]byte, 1<<10)

// bare publishes a batch with nothing but the library.
func bare(b *testing.B, js jetstream.JetStream, batch []publish.Message) {
	futures := make([]jetstream.PubAckFuture, len(batch))
	for i := range batch {
		m := &batch[i]
		var err error
		futures[i], err = js.PublishMsgAsync(&client.Msg{
			Subject: m.RoutingKey, Data: m.Body,
			Header: client.Header{"Nats-Msg-Id": []string{m.Name.ID}, "msghandler-attempt": []string{"1"}},
		})
		if err != nil {
			b.Error(err)
			return
		}
	}
	for _, f := range futures {
		select {
		case <-f.Ok():
		case err := <-f.Err():
			b.Error(err)
		}
	}
}
