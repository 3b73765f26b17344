package amqpconn

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

const (
	// mostPending is how many bytes wait to be written before a Write waits for them.
	mostPending = 256 << 10
	// farewell bounds the wait of Close for earlier writes.
	farewell = 200 * time.Millisecond
)

// conn writes in the background: data that arrives during a write goes out together, with the next write. The library
// writes each message separately, and the system call for each write is the largest part of the cost of sending. Each
// write has a time limit: the library would hang in a write with its locks held, and ignore any context. A failed
// write ends the connection, which the library's reader notices.
type conn struct {
	net.Conn
	mu sync.Mutex
	// changed signals a change of the fields below.
	changed *sync.Cond
	timeout time.Duration
	pending []byte
	spare   []byte // becomes the next pending
	writing bool   // drain runs
	err     error  // why no more writes are possible
	// drains holds the goroutine of drain.
	drains lifecycle.Group
}

func newConn(raw net.Conn, timeout time.Duration) *conn {
	c := &conn{Conn: raw, timeout: timeout}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// Write implements net.Conn. Write returns before the bytes are sent.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && len(c.pending) >= mostPending {
		c.changed.Wait()
	}
	if c.err != nil {
		return 0, c.err
	}
	c.pending = append(c.pending, b...)
	if !c.writing {
		c.writing = true
		c.drains.Go(c.drain)
	}
	return len(b), nil
}

// drain writes until nothing is pending.
func (c *conn) drain() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && len(c.pending) > 0 {
		out, timeout := c.pending, c.timeout
		c.pending = c.spare[:0]
		c.changed.Broadcast()
		c.mu.Unlock()
		err := c.writeAll(out, timeout)
		c.mu.Lock()
		c.spare = out
		if err != nil {
			c.end(err)
		}
	}
	c.writing = false
	c.changed.Broadcast()
}

func (c *conn) writeAll(b []byte, timeout time.Duration) error {
	if err := c.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return err
	}
	_, err := c.Conn.Write(b)
	return err
}

// end makes later writes fail, and hangs up. Its caller holds the lock.
func (c *conn) end(why error) {
	if c.err == nil {
		c.err = why
	}
	c.changed.Broadcast()
	_ = c.Conn.Close() // ended in any case
}

// hangUp ends the connection, also while calls are pending.
func (c *conn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(net.ErrClosed)
}

// Close implements net.Conn. Earlier writes still go out, for farewell at most.
func (c *conn) Close() error {
	late := time.AfterFunc(farewell, c.hangUp)
	defer late.Stop()
	c.endAfterWrites()
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	_ = c.drains.Wait(ctx) // the closed connection ends a write
	return nil
}

func (c *conn) endAfterWrites() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && c.writing {
		c.changed.Wait()
	}
	c.end(net.ErrClosed)
}
