package nats

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// hangingJetStream fails each write after a while, as on a server that does not read.
type hangingJetStream struct {
	jetstream.JetStream
	hang time.Duration
}

func (h hangingJetStream) PublishMsgAsync(*nats.Msg, ...jetstream.PublishOpt) (jetstream.PubAckFuture, error) {
	time.Sleep(h.hang)
	return nil, nats.ErrConnectionClosed
}

func (h hangingJetStream) Stream(context.Context, string) (jetstream.Stream, error) {
	return nil, jetstream.ErrStreamNotFound
}

// A write outlasts the confirm timeout and fails then. The message has one outcome, and gives back one slot.
func TestLateWriteFailureSettlesOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := Config{ConfirmTimeout: time.Second, Window: 1, Logger: slog.New(slog.DiscardHandler)}
		p := &Publisher{Life: publish.NewLife[*connection](config, publish.RoutesConfig{ByExchange: true, Unprobed: true})}
		p.Connected(t.Context(), "server", &connection{
			js: hangingJetStream{hang: 2 * time.Second}, inFlight: make(map[*nats.Msg]*sent),
		})
		var places []int
		var results []publish.Result
		p.Publish(t.Context(), []publish.Message{{
			Name: publish.Name{Producer: "orders", ID: "1"}, Exchange: "ORDERS", RoutingKey: "orders.paid", Attempt: 1,
		}}, func(some []int, their []publish.Result) {
			places, results = append(places, some...), append(results, their...)
		})
		if len(places) != 1 || results[0].Outcome != publish.Unsure {
			t.Errorf("places %v, results %v", places, results)
		}
		if n := p.InFlight(); n != 0 {
			t.Errorf("%d messages hold a slot", n)
		}
	})
}
