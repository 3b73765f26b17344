package simulation

import (
	"cmp"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}

// Conn is one end of a connection. It implements net.Conn; its buffers have no bound, so a write never waits.
type Conn struct {
	host          *Host
	name          string
	local, remote netip.AddrPort
	// in are the bytes for this end, and out the bytes for the peer.
	in, out *stream
	peer    *Conn
	once    sync.Once
	// writes counts the writes of this end.
	writes atomic.Int32
}

// handshake is how many writes open a connection to Redis.
const handshake = 4

// opensRedis says whether a connection to Redis is being opened.
func (c *Conn) opensRedis() bool {
	const name = "redis"
	return c.writes.Load() < handshake && (c.host.name == name || c.peer.host.name == name)
}

func sortedConns(all map[*Conn]bool) []*Conn {
	return slices.SortedFunc(maps.Keys(all), func(a, b *Conn) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.local.Port(), b.local.Port()))
	})
}

// Name is FROM>TO#NUMBER.
func (c *Conn) Name() string { return c.name }

// Host is the host of this end, and Peer the host of the other end.
func (c *Conn) Host() *Host { return c.host }

// Peer is the host of the other end.
func (c *Conn) Peer() *Host { return c.peer.host }

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) { return c.in.read(b) }

// Write implements net.Conn. Each write is an event.
func (c *Conn) Write(b []byte) (int, error) {
	f := c.host.network.act(c, Wrote, b)
	defer c.host.countWrite()
	if c.opensRedis() {
		f.Delay = 0
	}
	c.writes.Add(1)
	due := time.Now().Add(f.Delay)
	if until := c.host.stalledUntil(); until.After(due) {
		due = until
	}
	switch f.Cut {
	case Whole:
		n, err := c.out.write(b, due)
		if err != nil {
			// The peer is gone and answers with a reset, before what it had sent arrives. gRPC would try again without a
			// pause until its reader fails too, and the bubble's time would stand still.
			c.in.abort(errReset)
		}
		return n, err
	case CutBefore:
	case CutHalf:
		_, _ = c.out.write(b[:len(b)/2], due)
	case CutAfter:
		_, _ = c.out.write(b, due)
	}
	c.host.network.act(c, WasCut, nil)
	c.cut(true)
	if f.Cut == CutAfter {
		return len(b), nil // the kernel has taken the bytes
	}
	return 0, errReset
}

// cut ends the connection with an error for both ends. arrives: the bytes on their way to the peer still arrive.
func (c *Conn) cut(arrives bool) {
	c.in.abort(errReset)
	if arrives {
		c.out.end(errReset)
	} else {
		c.out.abort(errReset)
	}
	c.leave()
}

func (c *Conn) leave() {
	c.host.leave(c)
	c.peer.host.leave(c.peer)
}

// Close implements net.Conn. Bytes written before still arrive.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.host.network.act(c, Closed, nil)
		c.in.abort(net.ErrClosed)
		c.out.end(io.EOF)
		c.host.leave(c)
	})
	return nil
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return net.TCPAddrFromAddrPort(c.local) }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.remote) }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.SetReadDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.deadline = t
	c.in.wake()
	return nil
}

// SetWriteDeadline implements net.Conn: no write waits.
func (*Conn) SetWriteDeadline(time.Time) error { return nil }

// stream is one direction of a connection.
type stream struct {
	// to is the host that reads.
	to *Host

	mu     sync.Mutex
	chunks []chunk
	// ended is the error of readers after the chunks, and aborted their error at once.
	ended, aborted error
	deadline       time.Time
	// changed is closed when something changes; nil: no reader waits.
	changed chan struct{}
}

// chunk has the bytes of a write. They may be read from due on.
type chunk struct {
	due  time.Time
	data []byte
}

func newStream(to *Host) *stream { return &stream{to: to} }

// wake wakes the reader. Its caller holds the lock.
func (s *stream) wake() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

func (s *stream) write(b []byte, due time.Time) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended != nil || s.aborted != nil {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: syscall.EPIPE}
	}
	if last := len(s.chunks) - 1; last >= 0 && s.chunks[last].due.After(due) {
		due = s.chunks[last].due // no write overtakes another on its connection
	}
	s.chunks = append(s.chunks, chunk{due, slices.Clone(b)})
	s.wake()
	return len(b), nil
}

// end ends the stream after the bytes on their way.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		s.ended = err
	}
	s.wake()
}

// abort ends the stream at once.
func (s *stream) abort(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.aborted == nil {
		s.aborted, s.chunks = err, nil
	}
	s.wake()
}

func (s *stream) read(b []byte) (int, error) {
	for {
		n, wait, err := s.tryRead(b)
		if wait == nil {
			return n, err
		}
		wait()
	}
}

// tryRead reads, or returns how to wait until a try may succeed.
func (s *stream) tryRead(b []byte) (n int, wait func(), err error) {
	stalled := s.to.stalledUntil()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, until := time.Now(), s.deadline
	switch {
	case s.aborted != nil:
		return 0, nil, s.aborted
	case !s.deadline.IsZero() && !now.Before(s.deadline):
		return 0, nil, os.ErrDeadlineExceeded
	case len(s.chunks) > 0:
		due := s.chunks[0].due
		if stalled.After(due) {
			due = stalled
		}
		if !due.After(now) {
			return s.pop(b), nil, nil
		}
		if until.IsZero() || due.Before(until) {
			until = due
		}
	case s.ended != nil:
		return 0, nil, s.ended
	}
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	changed := s.changed
	return 0, func() { waitFor(changed, until) }, nil
}

// pop reads from the first chunk. Its caller holds the lock.
func (s *stream) pop(b []byte) int {
	first := &s.chunks[0]
	n := copy(b, first.data)
	if first.data = first.data[n:]; len(first.data) == 0 {
		s.chunks = s.chunks[1:]
	}
	return n
}

// waitFor waits for a channel to close, or until a time that is not zero.
func waitFor(changed <-chan struct{}, until time.Time) {
	if until.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}
