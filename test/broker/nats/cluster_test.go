package nats_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
)

// cluster is three servers, and an administrator who knows all of them.
type cluster struct {
	*admin
	nodes []*servers.NATSServer
	url   string
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{nodes: servers.NATSCluster(t, 3)}
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, strings.TrimPrefix(n.URL, "nats://"))
	}
	c.url = "nats://" + strings.Join(hosts, ",")
	c.admin = connect(t, c.url)
	return c
}

// leader is the node that leads a stream.
func (c *cluster) leader(stream string) *servers.NATSServer {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	s, err := c.js.Stream(ctx, stream)
	if err != nil {
		c.t.Fatal(err)
	}
	var n int
	if _, err := fmt.Sscanf(s.CachedInfo().Cluster.Leader, "n%d", &n); err != nil {
		c.t.Fatalf("the leader is %q: %v", s.CachedInfo().Cluster.Leader, err)
	}
	return c.nodes[n]
}

// load publishes as the send loop does: a message is repeated until it is acknowledged, and a copy that follows one
// without an outcome has the next number.
type load struct {
	t     *testing.T
	end   context.CancelFunc
	group sync.WaitGroup
	next  atomic.Int64
	acked atomic.Int64
}

func startLoad(t *testing.T, p *nats.Publisher, stream, subject string) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, end: cancel}
	for range 4 {
		l.group.Go(func() {
			for ctx.Err() == nil {
				batch := messages(50, stream, subject)
				for i := range batch {
					batch[i].Name.ID = fmt.Sprintf("load-%d", l.next.Add(1))
				}
				l.deliver(p, batch)
			}
		})
	}
	t.Cleanup(l.stop)
	return l
}

func (l *load) deliver(p *nats.Publisher, batch []publish.Message) {
	for deadline := time.Now().Add(2 * time.Minute); len(batch) > 0; {
		if time.Now().After(deadline) {
			l.t.Errorf("%d messages are not acknowledged", len(batch))
			return
		}
		results := publishAll(context.Background(), p, batch)
		var again []publish.Message
		for i, r := range results {
			switch r.Outcome {
			case publish.Acked:
				l.acked.Add(1)
				continue
			case publish.Refused:
				l.t.Errorf("refused: %v", r.Cause)
			case publish.Unsure:
				batch[i].Attempt++
			default:
			}
			again = append(again, batch[i])
		}
		if batch = again; len(batch) > 0 {
			_ = backoff.Sleep(context.Background(), 20*time.Millisecond)
		}
	}
}

// enough waits until so many more are acknowledged.
func (l *load) enough(n int64) {
	l.t.Helper()
	goal := l.acked.Load() + n
	servers.Eventually(l.t, 90*time.Second, "acknowledgements go on", func() bool { return l.acked.Load() >= goal })
}

func (l *load) stop() {
	l.end()
	l.group.Wait()
}

// One of three servers is killed under load, the one that leads the stream: nothing is lost, and what was in flight is
// repeated and stored once.
func TestNothingIsLostWhenLeaderDies(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.make(jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Replicas: 3})
	p := publisher(t, nats.Config{URL: c.url, ConfirmTimeout: 5 * time.Second})
	l := startLoad(t, p, "ORDERS", "orders.x")
	for range 2 {
		l.enough(1000)
		node := c.leader("ORDERS")
		node.Kill()
		l.enough(1000)
		node.Start()
	}
	l.enough(1000)
	l.stop()
	t.Logf("%d messages, %d of them deduplicated", l.acked.Load(), p.Duplicates())

	copies := map[string]int{}
	for _, m := range c.read("ORDERS", 1) {
		id := m.Header.Get("msghandler-id")
		if copies[id]++; copies[id] > 1 && m.Header.Get("msghandler-attempt") == "1" {
			t.Errorf("%s is there %d times, without a flag", id, copies[id])
		}
	}
	for n := int64(1); n <= l.next.Load(); n++ {
		if copies[fmt.Sprintf("load-%d", n)] == 0 {
			t.Fatalf("message %d of %d was acknowledged and is lost", n, l.next.Load())
		}
	}
}

// With two of three servers gone nothing can be stored. That costs no attempt, and Ready says why.
func TestClusterWithoutQuorumCostsNoAttempt(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.make(jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Replicas: 3})
	p := publisher(t, nats.Config{URL: c.url, ConfirmTimeout: 2 * time.Second})
	expect(t, publishAll(t.Context(), p, messages(10, "ORDERS", "orders.x")), publish.Acked)
	c.nodes[0].Kill()
	c.nodes[1].Kill()
	attempts := 1
	servers.Eventually(t, time.Minute, "the publisher is not ready", func() bool {
		attempts++
		batch := messages(10, "ORDERS", "orders.x")
		for i := range batch {
			batch[i].Name.ID, batch[i].Attempt = "later "+batch[i].Name.ID, attempts
		}
		counts := count(publishAll(t.Context(), p, batch))
		if counts[publish.Refused]+counts[publish.Acked] > 0 {
			t.Fatalf("without a quorum: %v", counts)
		}
		return errors.Is(p.Ready(), publish.ErrBlocked)
	})
	t.Log(p.Ready())
	expect(t, publishAll(t.Context(), p, messages(10, "ORDERS", "orders.x")), publish.Unsent)
	c.nodes[0].Start()
	c.nodes[1].Start()
	servers.Eventually(t, time.Minute, "messages are acknowledged again", func() bool {
		return outcome(t, p, message(-1, "ORDERS", "orders.x")).Outcome == publish.Acked
	})
}

// The only server of a stream is gone, while the cluster is well: the messages of the stream wait, and others do not.
func TestStreamWithoutLeaderDelaysNoOther(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	c.make(jetstream.StreamConfig{Name: "ALONE", Subjects: []string{"alone.>"}, Replicas: 1})
	c.make(jetstream.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}, Replicas: 3})
	p := publisher(t, nats.Config{URL: c.url, ConfirmTimeout: 5 * time.Second})
	node := c.leader("ALONE")
	node.Kill()
	servers.Eventually(t, time.Minute, "the cluster is well without the server", func() bool {
		return p.Ready() == nil && outcome(t, p, message(-1, "ORDERS", "orders.x")).Outcome == publish.Acked
	})
	both := append(messages(10, "ORDERS", "orders.y"), messages(10, "ALONE", "alone.y")...)
	for i := range both {
		both[i].Name.ID = fmt.Sprint("both ", i)
	}
	results := publishAll(t.Context(), p, both)
	expect(t, results[:10], publish.Acked)
	expect(t, results[10:], publish.Unsent)
	t.Log(results[10].Cause)
	node.Start()
	servers.Eventually(t, time.Minute, "the stream takes messages again", func() bool {
		return outcome(t, p, message(-1, "ALONE", "alone.x")).Outcome == publish.Acked
	})
}
