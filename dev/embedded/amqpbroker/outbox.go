package amqpbroker

import (
	"net"
	"slices"
	"sync"
	"time"
)

const (
	// writeTimeout ends connections whose clients read nothing at all. It is the time for writePart octets: any number may
	// wait for a client that reads slowly.
	writeTimeout = 30 * time.Second
	writePart    = 64 << 10
	// lastWriteTimeout is how long a connection that ends may take to send its pending data.
	lastWriteTimeout = time.Second
)

// outbox gathers the data for a client. Data added during a write leave with the next write.
type outbox struct {
	mu      sync.Mutex
	pending []byte
	// heartbeat is the longest silence; 0 means no heartbeats.
	heartbeat time.Duration
	finished  bool
	broken    bool
	wake      chan struct{}
}

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

// add appends to the pending data. The function gets the pending data and returns them with its own data appended.
func (o *outbox) add(appendTo func([]byte) []byte) {
	o.mu.Lock()
	if !o.broken {
		o.pending = appendTo(o.pending)
	}
	o.mu.Unlock()
	o.notify()
}

func (o *outbox) notify() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// setHeartbeat sets the longest silence.
func (o *outbox) setHeartbeat(interval time.Duration) {
	o.mu.Lock()
	o.heartbeat = interval
	o.mu.Unlock()
	o.notify()
}

// finish has the rest sent and then ends run.
func (o *outbox) finish() {
	o.mu.Lock()
	o.finished = true
	o.mu.Unlock()
	o.notify()
}

// breakOff drops all pending and future data.
func (o *outbox) breakOff() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.broken = true
	o.pending = nil
}

// take returns all pending data, and the state that run needs.
func (o *outbox) take() (out []byte, heartbeat time.Duration, finished bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	out, o.pending = o.pending, nil
	return out, o.heartbeat, o.finished
}

// run writes until the outbox is finished or the client cannot be written to any more.
func (o *outbox) run(nc net.Conn) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due := o.wait(timer)
		out, heartbeat, finished := o.take()
		if due && len(out) == 0 && heartbeat > 0 {
			out = appendFrame(out, frameHeartbeat, 0, nil)
		}
		if err := writeAll(nc, out, finished); err != nil {
			return err
		}
		if finished {
			return nil
		}
		if heartbeat == 0 {
			heartbeat = time.Hour
		}
		timer.Reset(heartbeat)
	}
}

// wait blocks until there is work; due says that a heartbeat is due.
func (o *outbox) wait(timer *time.Timer) (due bool) {
	select {
	case <-o.wake:
		return false
	case <-timer.C:
		return true
	}
}

func writeAll(nc net.Conn, out []byte, last bool) error {
	deadline := time.Now().Add(lastWriteTimeout)
	for part := range slices.Chunk(out, writePart) {
		if !last {
			deadline = time.Now().Add(writeTimeout)
		}
		if err := nc.SetWriteDeadline(deadline); err != nil {
			return err
		}
		if _, err := nc.Write(part); err != nil {
			return err
		}
	}
	return nil
}
