package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	markerredis "github.com/msghandler/msghandler/producer/marker/redis"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

const (
	exchange = "faults"
	queue    = "faults.inbox"
)

// errRefused is a business that is certain not to have committed.
var errRefused = errors.New("the business refuses")

// service is a producer of the load, with a truth of its own in the ledger.
type service struct {
	name   string
	ledger *Ledger
	sdk    *producer.Producer

	mu   sync.Mutex
	seen []string // errors of the SDK that its user saw and did not expect
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// newService serves its callbacks until the test ends.
func newService(w *world, name string, markers marker.Store) *service {
	w.t.Helper()
	s := &service{name: name, ledger: w.ledger}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	s.sdk, err = producer.New(producer.Config{
		Name: name, Coordinator: w.targets(), CallbackTarget: listener.Addr().String(), Markers: markers,
		Resolve: s.resolve, SendTimeout: patience, Logger: quiet(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(s.hear))
	s.sdk.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = s.sdk.Close(ctx)
		server.Stop()
		serving.Wait()
	})
	return s
}

func (s *service) key(id string) string { return s.name + "/" + id }

// hear notes every definite verdict that leaves this producer.
func (s *service) hear(ctx context.Context, in any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	out, err := next(ctx, in)
	if r, ok := out.(*pb.ConfirmResponse); ok && err == nil {
		for _, c := range r.GetConfirmations() {
			switch c.GetVerdict() {
			case pb.Verdict_VERDICT_COMMITTED:
				s.ledger.Said(s.key(c.GetId()), Committed)
			case pb.Verdict_VERDICT_ROLLED_BACK:
				s.ledger.Said(s.key(c.GetId()), RolledBack)
			}
		}
	}
	return out, err
}

// resolve looks at the business data; the last question plants the tombstone.
func (s *service) resolve(_ context.Context, id string, final bool) (marker.Verdict, error) {
	fate := s.ledger.Fate(s.key(id))
	if fate == Undecided && final {
		fate = s.ledger.Decide(s.key(id), RolledBack)
	}
	return map[Fate]marker.Verdict{
		Undecided: marker.Unknown, Committed: marker.Committed, RolledBack: marker.RolledBack,
	}[fate], nil
}

// act does one business in one of the ways in which businesses go.
func (s *service) act(ctx context.Context, id string, random *rand.Rand) {
	size := 1 << 10
	if random.IntN(20) == 0 {
		size = 64 << 10
	}
	body := bytes.Repeat([]byte(id+" "), size/(len(id)+1))
	way, slow := random.IntN(100), time.Duration(1000+random.IntN(2000))*time.Millisecond
	key := s.key(id)
	m := producer.Message{ID: id, Exchange: exchange, RoutingKey: s.name, Body: body}
	business := func(context.Context) error {
		s.ledger.Accepted(key)
		switch {
		case way >= 60 && way < 72: // commits in silence
			s.ledger.Decide(key, Committed)
			return producer.ErrOutcomeUnknown
		case way >= 72 && way < 84:
			s.ledger.Decide(key, RolledBack)
			return errRefused
		case way >= 84 && way < 89: // breaks off before the commit
			return producer.ErrOutcomeUnknown
		case way >= 89 && way < 94:
			pause := time.NewTimer(slow)
			<-pause.C
		}
		if s.ledger.Decide(key, Committed) != Committed {
			return errRefused // the tombstone was there first
		}
		return nil
	}
	s.ledger.Sending(key, NewContent(exchange, s.name, body))
	s.expect(key, s.sdk.Send(ctx, m, business), nil, errRefused, producer.ErrOutcomeUnknown)
	switch {
	case way >= 94 && way < 97: // repeated
		s.expect(key, s.sdk.Send(ctx, m, business), producer.ErrAlreadyCommitted)
	case way >= 97: // another message under the same id
		m.Body = []byte("another")
		s.ledger.Noted(key, "producer", "sends other content under the same id")
		s.expect(key, s.sdk.Send(ctx, m, business), producer.ErrExists, producer.ErrAlreadyCommitted)
	}
}

// expect notes an error that is none of those that the load asked for.
func (s *service) expect(key string, got error, wanted ...error) {
	s.ledger.Noted(key, "producer", fmt.Sprint("Send returns: ", got))
	for _, want := range wanted {
		if errors.Is(got, want) {
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = append(s.seen, fmt.Sprintf("%s: %v", key, got))
}

// load is the producers and consumers of a row.
type load struct {
	services []*service
	running  sync.WaitGroup
}

// newLoad starts the consumers and makes the producers.
func newLoad(w *world) *load {
	w.t.Helper()
	client := goredis.NewClient(&goredis.Options{Addr: servers.Redis(w.t).Addr, ContextTimeoutEnabled: true})
	w.t.Cleanup(func() { client.Close() })
	kept, err := markerredis.New(markerredis.Config{Client: client, Producer: "kept"})
	if err != nil {
		w.t.Fatal(err)
	}
	for range 2 {
		consume(w)
	}
	return &load{services: []*service{newService(w, "forgetful", memory.New()), newService(w, "kept", kept)}}
}

// consume notes every copy that comes, until the test ends.
func consume(w *world) {
	w.t.Helper()
	ready := make(chan struct{})
	var once sync.Once
	c, err := consumer.New(consumer.Config{
		URL: w.broker.URL, Queue: queue, Declare: &consumer.Declare{Exchange: exchange}, Prefetch: 100, Logger: quiet(),
		Consuming: func() { once.Do(func() { close(ready) }) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		_ = c.Run(ctx, consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
			content := NewContent(m.Exchange, m.RoutingKey, m.Body)
			w.ledger.Got(m.Key(), Copy{Content: content, Attempt: m.Attempt, Redelivered: m.Redelivered})
			return nil
		}))
	})
	w.t.Cleanup(func() { cancel(); running.Wait() })
	select {
	case <-ready:
	case <-time.After(patience):
		w.t.Fatal("the consumer does not consume")
	}
}

// run begins so many ids a second until the context ends, and then waits for those that have begun.
func (l *load) run(t *testing.T, ctx context.Context, perSecond int, seed uint64) {
	t.Helper()
	tick := time.NewTicker(time.Second / time.Duration(perSecond))
	defer tick.Stop()
	random := rand.New(rand.NewPCG(seed, seed))
	for n := 0; ctx.Err() == nil; n++ {
		s, own := l.services[n%len(l.services)], rand.New(rand.NewPCG(seed, random.Uint64()))
		l.running.Go(func() { s.act(t.Context(), fmt.Sprintf("%06d", n), own) })
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	l.running.Wait()
}
