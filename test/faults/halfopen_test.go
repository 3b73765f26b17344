package faults

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

// Connections with RabbitMQ of which nobody says that they are dead.
var halfOpenRows = []row{
	{name: "F32", copies: true, world: options{amqp: throughSilencer}, fault: fallSilent, judge: felt("unsure")},
}

// throughSilencer is the broker's URL for coordinators that reach it through the world's silencer.
func throughSilencer(w *world) string {
	_, rest, _ := strings.Cut(w.broker.URL, "@")
	broker, _, _ := strings.Cut(rest, "/")
	if w.silencer == nil {
		w.silencer = startSilencer(w.t, broker)
	}
	return strings.Replace(w.broker.URL, broker, w.silencer.listener.Addr().String(), 1)
}

// fallSilent makes the coordinators' connections swallow everything and stay open. Those made afterwards work.
func fallSilent(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	w.ledger.Fault("the connections with RabbitMQ fall silent")
	began, connected := time.Now(), w.silencer.accepted.Load()
	w.silencer.swallow()
	servers.Eventually(w.t, patience, "all coordinators have connected again", func() bool {
		return w.silencer.accepted.Load() >= connected+int64(len(w.coordinators))
	})
	took := time.Since(began)
	w.ledger.Fault("all coordinators have connected again")
	w.t.Logf("found out after %v", took.Round(10*time.Millisecond))
	const heartbeat = 5 * time.Second
	if took > 2*heartbeat {
		w.t.Errorf("it took %v to find out, more than two heartbeats of %v", took, heartbeat)
	}
	w.allReady()
}

// silencer stands between the coordinators and the broker.
type silencer struct {
	listener net.Listener
	broker   string
	accepted atomic.Int64
	group    sync.WaitGroup

	mu    sync.Mutex
	ended bool
	pairs []*pair
}

// pair is one connection, as its two halves. silent, it loses whatever comes.
type pair struct {
	client, broker net.Conn
	silent         atomic.Bool
}

// startSilencer passes on what goes to and comes from the broker, until the test ends.
func startSilencer(t *testing.T, broker string) *silencer {
	t.Helper()
	s := &silencer{listener: listenAnywhere(t), broker: broker}
	s.group.Go(s.accept)
	t.Cleanup(s.end)
	return s
}

func listenAnywhere(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

func (s *silencer) accept() {
	for {
		client, err := s.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", s.broker)
		if err != nil {
			_ = client.Close()
			continue
		}
		p := &pair{client: client, broker: broker}
		s.add(p)
		s.group.Go(func() { p.pass(p.broker, p.client) })
		s.group.Go(func() { p.pass(p.client, p.broker) })
		s.accepted.Add(1)
	}
}

func (s *silencer) add(p *pair) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pairs = append(s.pairs, p)
	if s.ended {
		p.close()
	}
}

// swallow silences the connections that there are.
func (s *silencer) swallow() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.pairs {
		p.silent.Store(true)
	}
}

func (s *silencer) end() {
	_ = s.listener.Close()
	s.mu.Lock()
	s.ended = true
	for _, p := range s.pairs {
		p.close()
	}
	s.mu.Unlock()
	s.group.Wait()
}

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.broker.Close()
}

// pass hands on what is read. The end of one half is the other's, unless it is silent: nobody hears of an end then.
func (p *pair) pass(to, from net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if p.silent.Load() {
			if err != nil {
				return
			}
			continue
		}
		if err == nil {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			p.close()
			return
		}
	}
}
