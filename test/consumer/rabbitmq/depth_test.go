package rabbitmq_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// depths records the reported depths of queues.
type depths struct {
	mu            sync.Mutex
	waiting, dead map[string]int
	reports       int
}

func (d *depths) Begun(string)                                 {}
func (d *depths) Ended(string, consumer.Result, time.Duration) {}
func (d *depths) Depth(queue string, n int)                    { d.note(&d.waiting, queue, n) }
func (d *depths) DeadLetters(queue string, n int)              { d.note(&d.dead, queue, n) }

func (d *depths) note(at *map[string]int, queue string, n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *at == nil {
		*at = map[string]int{}
	}
	(*at)[queue] = n
	d.reports++
}

func (d *depths) are(waiting, dead int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	n, said := d.waiting["payments"]
	m, saidDead := d.dead["payments"]
	return said && saidDead && n == waiting && m == dead
}

func (d *depths) times() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reports
}

func TestQueueDepthsAreReported(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config, observed := b.config(), &depths{}
	config.Observer, config.DepthInterval, config.Prefetch = observed, 20*time.Millisecond, 1
	release := make(chan struct{})
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		if m.ID == "1" || m.ID == "2" {
			return consumer.Reject(errors.New("nonsense"))
		}
		<-release
		return nil
	})
	b.publish(1, 7)
	// 1 and 2 are dead, 3 is being handled, the others wait.
	servers.Eventually(t, patience, "4 wait and 2 are dead", func() bool { return observed.are(4, 2) })
	close(release)
	servers.Eventually(t, patience, "none waits", func() bool { return observed.are(0, 2) })
}

// A passive declare of a missing queue closes its channel, which must not be the consuming channel.
func TestConsumingNeedsNoDeadLetterQueue(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	config, observed := b.config(), &depths{}
	config.Observer, config.DepthInterval = observed, 20*time.Millisecond
	sessions, handled := make(chan struct{}, 10), make(chan string, 10)
	config.Consuming = func() { sessions <- struct{}{} }
	b.start(config, func(_ context.Context, m *consumer.Message) error {
		handled <- m.ID
		return nil
	})
	take(t, sessions, "consuming")
	if _, err := b.ch.QueueDelete("payments.dead", false, false, false); err != nil {
		t.Fatal(err)
	}
	asked := observed.times()
	servers.Eventually(t, patience, "further reports", func() bool { return observed.times() > asked+5 })
	b.publish(1, 1)
	take(t, handled, "a message that is handled")
	if len(sessions) != 0 {
		t.Error("the session broke")
	}
}
