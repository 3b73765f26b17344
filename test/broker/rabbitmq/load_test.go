package rabbitmq_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
)

// load publishes until stop. None of its messages may be refused, in every fault of the broker.
type load struct {
	t     *testing.T
	end   context.CancelFunc
	group sync.WaitGroup
	next  atomic.Int64
	count atomic.Int64

	mu    sync.Mutex
	acked []string
}

func startLoad(t *testing.T, p *rabbitmq.Publisher) *load {
	ctx, cancel := context.WithCancel(t.Context())
	l := &load{t: t, end: cancel}
	for range 4 {
		l.group.Go(func() {
			for ctx.Err() == nil {
				l.publish(p)
			}
		})
	}
	t.Cleanup(func() { l.stop() })
	return l
}

func (l *load) publish(p *rabbitmq.Publisher) {
	batch := messages(50, "e", "k")
	for i := range batch {
		batch[i].Name.ID = fmt.Sprintf("load %d", l.next.Add(1))
	}
	results := publishAll(context.Background(), p, batch)
	if results[0].Outcome == publish.Unsent {
		_ = backoff.Sleep(context.Background(), 5*time.Millisecond)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, r := range results {
		switch r.Outcome {
		case publish.Acked:
			l.acked = append(l.acked, batch[i].Name.ID)
			l.count.Add(1)
		case publish.Refused:
			l.t.Errorf("refused: %v", r.Cause)
		}
	}
}

// enough waits until a thousand more are acknowledged.
func (l *load) enough() {
	l.t.Helper()
	goal := l.count.Load() + 1000
	servers.Eventually(l.t, 30*time.Second, "a thousand acknowledgements", func() bool { return l.count.Load() >= goal })
}

// stop ends the load and returns the ids of acknowledged messages.
func (l *load) stop() []string {
	l.end()
	l.group.Wait()
	return l.acked
}

// lastID is the id of the message behind all others.
const lastID = "the last one"

func last() publish.Message {
	m := message(0, "e", "k")
	m.Name.ID = lastID
	return m
}

// drain consumes until the message with the last id comes, and remembers all ids.
func (d *topology) drain(queue, until string, ids map[string]bool) {
	d.t.Helper()
	deliveries, err := d.channel.Consume(queue, "", true, false, false, false, nil)
	d.must(err)
	timeout := time.After(2 * time.Minute)
	for !ids[until] {
		select {
		case delivery := <-deliveries:
			ids[delivery.MessageId] = true
		case <-timeout:
			d.t.Fatalf("%q did not come within 30 s", until)
		}
	}
}
