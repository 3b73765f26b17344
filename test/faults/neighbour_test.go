package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
)

// sender is a producer beside the load whose businesses all commit, at a fixed rate, to an exchange of the row's
// choice.
type sender struct {
	*service
	exchange string
}

func newSender(w *world, name, exchange string) *sender {
	w.t.Helper()
	return &sender{service: newService(w, name, memory.New()), exchange: exchange}
}

// sent ends the routing keys of a sender. On NATS the load's stream takes only subjects without a dot.
const sent = ".sent"

// run sends until the context ends, and at least once.
func (s *sender) run(ctx context.Context, w *world, every time.Duration) {
	for n := 0; ; n++ {
		id := fmt.Sprintf("%06d", n)
		key, body := s.key(id), []byte(s.exchange+" "+id)
		m := producer.Message{
			ID: id, Broker: s.to.broker, Exchange: s.exchange, RoutingKey: s.name + sent, Headers: s.headers(id), Body: body,
		}
		s.ledger.Sending(key, NewContent(m.Exchange, m.RoutingKey, m.Headers, body))
		err := s.sdk.Send(w.t.Context(), m, func(context.Context) error {
			s.ledger.Accepted(key)
			s.ledger.Decide(key, Committed)
			return nil
		})
		if err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("%s: %v", key, err)
		}
		if pause(ctx, every); ctx.Err() != nil {
			return
		}
	}
}

const neighbours = "neighbour"

// withNeighbour is a fault during which another producer sends to an unrelated exchange.
func withNeighbour(fault func(context.Context, *world, *rand.Rand)) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, random *rand.Rand) {
		consume(w, neighbours, &rabbitmqconsumer.Declare{Exchange: neighbours})
		s := newSender(w, neighbours, neighbours)
		sending, stop := context.WithCancel(w.t.Context()) // a fault may outlast the load
		var running sync.WaitGroup
		running.Go(func() { s.run(sending, w, 50*time.Millisecond) })
		defer running.Wait()
		defer stop()
		fault(ctx, w, random)
	}
}

// othersGoOn is a judge. The fault must have shown as an outcome of publishes, and the neighbour's messages must have
// gone on: none waited until the timeout of an unanswered publish. A slow machine alone takes seconds.
func othersGoOn(outcome string) func(*testing.T, *world, *load, End) {
	return func(t *testing.T, w *world, l *load, end End) {
		t.Helper()
		felt(outcome)(t, w, l, end)
		silence := w.ledger.Silence(neighbours)
		t.Logf("the neighbour sent %d messages; none came for %v at most", len(w.ledger.Copies(neighbours)), silence)
		if silence >= confirmTimeout {
			t.Errorf("for %v nothing came from an exchange outside the fault: as long as the wait for an answer "+
				"(%v)",
				silence, confirmTimeout)
		}
	}
}
