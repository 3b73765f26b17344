package amqpconn

import (
	"net"
	"sync"
	"time"
)

const (
	// mostPending is how many bytes wait to be written before a Write waits for them.
	mostPending = 256 << 10
	// farewell is how long Close lets what was written before it go out.
	farewell = 200 * time.Millisecond
)

// conn writes behind the back of whoever writes: what comes while a write is under way goes out together with the next one.
// The library writes each message by itself, and a call of the system for each costs more than all else about sending it.
// Each write has a time limit. The library would hang in a write with its locks held, whatever a context says. A write that
// fails ends the connection, which tells the library's reader.
type conn struct {
	net.Conn
	mu      sync.Mutex
	changed *sync.Cond // of what follows
	timeout time.Duration
	pending []byte
	spare   []byte // to be the next pending
	writing bool   // somebody is in drain
	err     error  // why there are no more writes
}

func newConn(raw net.Conn, timeout time.Duration) *conn {
	c := &conn{Conn: raw, timeout: timeout}
	c.changed = sync.NewCond(&c.mu)
	return c
}

// Write implements net.Conn. It returns before the bytes are on their way.
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
		go c.drain()
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
	_ = c.Conn.Close() // it is over either way
}

// hangUp ends the connection, whatever is pending.
func (c *conn) hangUp() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end(net.ErrClosed)
}

// Close implements net.Conn. What was written before it still goes out, if that does not take long.
func (c *conn) Close() error {
	late := time.AfterFunc(farewell, c.hangUp)
	defer late.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && c.writing {
		c.changed.Wait()
	}
	c.end(net.ErrClosed)
	return nil
}
