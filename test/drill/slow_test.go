package drill

import (
	"context"
	"sync"
	"syscall"
	"time"
)

// past is how long the world trades before an incident that is found by a comparison: five minutes make a past, and a
// minute counts when the next one is over.
const past = 450 * time.Second

// makePast trades, unless the coordinators have a past already.
func (w *world) makePast() {
	if w.pastMade {
		return
	}
	w.t.Logf("trading for %v: the coordinators get a past", past)
	stop := w.every((*world).trade)
	select {
	case <-time.After(past):
	case <-w.t.Context().Done():
	}
	stop()
	w.pastMade = true
}

// delayRedis brings Redis 200 ms away: half of them there, and half of them back.
func (w *world) delayRedis() { w.toRedis.Delay(100 * time.Millisecond) }

// delayBroker has RabbitMQ confirm 4 to 8 s after a message.
func (w *world) delayBroker() { w.toRabbit.Delay(2 * time.Second) }

// tc removes the delays.
func (w *world) tc([]string) error {
	w.toRedis.Restore()
	w.toRabbit.Restore()
	return nil
}

// starve has the first coordinator run a fifth of the time, as a CPU limit that is too low does.
func (w *world) starve() {
	c := w.coordinators[0]
	ctx, cancel := context.WithCancel(w.t.Context())
	var starving sync.WaitGroup
	starving.Go(func() {
		defer c.signal(syscall.SIGCONT)
		ticker := time.NewTicker(200 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; ctx.Err() == nil; n++ {
			switch n % 5 {
			case 0:
				c.signal(syscall.SIGCONT)
			case 1:
				c.signal(syscall.SIGSTOP)
			}
			<-ticker.C
		}
	})
	w.starving = func() {
		cancel()
		starving.Wait()
	}
	w.t.Cleanup(w.starving)
}

// signal sends a signal that does not end the process.
func (c *coordinator) signal(signal syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	_ = c.Cmd.Process.Signal(signal) // a process that has ended needs none
}

// readReplica has orders read a replica that lags: it does not find a third of its transactions.
func (w *world) readReplica() { w.orders.setForgets(3) }

// flood has orders send hundreds of messages a second, as a loop of retries does.
func (w *world) flood() {
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 10 {
				w.order()
			}
		})
	}
	all.Wait()
}
