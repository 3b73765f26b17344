package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/redis/redismarker"
	"github.com/msghandler/msghandler/test/servers"
)

// The fault of this row is in the SDK: no defect of a coordinator causes the fault.
var replicaRows = []row{{name: "F08_replicas", alone: true, short: true, fault: replicasDisagree}}

// replicas are two processes of one producer, with one Redis for their markers. The coordinator asks the second
// process.
type replicas struct {
	first, second *producer.Producer
}

func newReplicas(w *world) replicas {
	w.t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: servers.Redis(w.t).Addr, ContextTimeoutEnabled: true})
	w.t.Cleanup(func() { client.Close() })
	listener := listen(w.t)
	replica := func() *producer.Producer {
		markers, err := redismarker.New(redismarker.Config{Client: client, Producer: peerName})
		w.must(err)
		sdk, err := producer.New(producer.Config{
			Name: peerName, Coordinator: w.targets(), CallbackTarget: listener.Addr().String(), Markers: markers,
			Coordinators: producer.Coordinators{Anyone: true}, Logger: quiet(),
		})
		w.must(err)
		w.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			_ = sdk.Close(ctx)
		})
		return sdk
	}
	r := replicas{replica(), replica()}
	server := grpc.NewServer()
	r.second.Register(server)
	serve(w.t, server, listener)
	return r
}

// paid is a message of the peer, noted in the ledger.
func (w *world) paid(id string) producer.Message {
	m := producer.Message{ID: id, Exchange: exchange, RoutingKey: peerName, Headers: headersOf(id), Body: []byte("paid")}
	w.ledger.Sending(key(id), NewContent(exchange, peerName, m.Headers, m.Body))
	return m
}

// replicasDisagree: while the first replica's transaction is open, the second runs the same id, certainly fails and
// rolls the message back. Then the first commits. The first replica must learn that its message is gone, so that the
// replica can undo the business and try again under another id.
func replicasDisagree(ctx context.Context, w *world, _ *rand.Rand) {
	r := newReplicas(w)
	const id, next = "1001", "1001-2"
	m := w.paid(id)
	err := r.first.Send(ctx, m, func(ctx context.Context) error {
		w.ledger.Accepted(key(id))
		failed := r.second.Send(ctx, m, func(context.Context) error { return errRefused })
		if !errors.Is(failed, errRefused) {
			w.t.Errorf("the failed replica: %v", failed)
		}
		w.ledger.Noted(key(id), "producer", "one replica has failed and rolled back, the other commits")
		return nil
	})
	if !errors.Is(err, producer.ErrContradicted) {
		w.t.Errorf("the committed replica was told %v", err)
		w.ledger.Decide(key(id), Committed)
		return
	}
	w.ledger.Decide(key(id), RolledBack) // the first replica undoes the business
	w.must(r.second.Send(ctx, w.paid(next), func(context.Context) error {
		w.ledger.Accepted(key(next))
		w.ledger.Decide(key(next), Committed)
		return nil
	}))
}
