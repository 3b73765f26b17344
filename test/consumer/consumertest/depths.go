package consumertest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// Depths is an Observer that keeps the last depth of each queue, and counts results and reports.
type Depths struct {
	mu            sync.Mutex
	waiting, dead map[string]int
	results       map[consumer.Result]int
	reports       int
}

// Begun implements consumer.Observer.
func (d *Depths) Begun(string) {}

// Ended implements consumer.Observer.
func (d *Depths) Ended(_ string, result consumer.Result, _ time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.results == nil {
		d.results = map[consumer.Result]int{}
	}
	d.results[result]++
}

// Depth implements consumer.Observer.
func (d *Depths) Depth(queue string, n int) { d.note(&d.waiting, queue, n) }

// DeadLetters implements consumer.Observer.
func (d *Depths) DeadLetters(queue string, n int) { d.note(&d.dead, queue, n) }

func (d *Depths) note(at *map[string]int, queue string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *at == nil {
		*at = map[string]int{}
	}
	(*at)[queue] = n
	d.reports++
}

// AwaitWaiting waits until a queue has a depth.
func (d *Depths) AwaitWaiting(t testing.TB, queue string, want int) {
	t.Helper()
	d.await(t, fmt.Sprintf("%d messages wait in %s", want, queue), func() bool {
		n, reported := d.waiting[queue]
		return reported && n == want
	})
}

// AwaitDead waits until so many dead letters of a queue are reported.
func (d *Depths) AwaitDead(t testing.TB, queue string, want int) {
	t.Helper()
	d.await(t, fmt.Sprintf("%d dead letters of %s", want, queue), func() bool {
		n, reported := d.dead[queue]
		return reported && n == want
	})
}

func (d *Depths) await(t testing.TB, what string, is func() bool) {
	t.Helper()
	servers.Eventually(t, patience, what, func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return is()
	})
}

// Dead is the number of dead letters that was last reported for a queue.
func (d *Depths) Dead(queue string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead[queue]
}

// Results is how many handlings had a result.
func (d *Depths) Results(result consumer.Result) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.results[result]
}

// Reports is how many depths were reported.
func (d *Depths) Reports() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reports
}

func sum(of map[string]int) (all int) {
	for _, n := range of {
		all += n
	}
	return all
}

// The names of the reported queues are the broker's own.
func depthsAreReported(t *testing.T, b Broker) {
	o, release := &Depths{}, make(chan struct{})
	stop := b.Run(Options{Observer: o, Prefetch: 1}, func(_ context.Context, m *consumer.Message) error {
		if m.ID == "0" || m.ID == "1" {
			return consumer.Reject(errors.New("nonsense"))
		}
		<-release
		return nil
	})
	b.Publish(numbered(7)...)
	// A consumer of Kafka knows of its last fetch, and may have fetched before all were published.
	o.await(t, "messages wait, and two are dead", func() bool { return sum(o.waiting) >= 1 && sum(o.dead) == 2 })
	close(release)
	o.await(t, "no message waits", func() bool { return sum(o.waiting) == 0 })
	servers.Eventually(t, patience, "all results", func() bool { return o.Results(consumer.Effect) == 5 })
	if n, err := b.DeadLetters().Discard(t.Context(), "shop/0", "shop/1"); n != 2 || err != nil {
		t.Errorf("discarded %d, %v", n, err)
	}
	o.await(t, "no dead letter is left", func() bool { return sum(o.dead) == 0 })
	stopped(t, stop)
	if n := o.Results(consumer.Dead); n != 2 {
		t.Errorf("%d handlings ended with a dead letter, want 2", n)
	}
}
