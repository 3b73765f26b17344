package simulation

import (
	"net"
	"net/netip"
	"os"
	"sync"
	"time"
)

// listener is a net.Listener in memory. Its backlog has no bound.
type listener struct {
	network *Network
	at      netip.AddrPort

	mu       sync.Mutex
	waiting  []*Conn
	closed   bool
	deadline time.Time
	// changed is closed and replaced when something changes.
	changed chan struct{}
}

func (l *listener) change(how func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	how()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *listener) take(c *Conn) { l.change(func() { l.waiting = append(l.waiting, c) }) }

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	for {
		l.mu.Lock()
		changed, until := l.changed, l.deadline
		switch {
		case l.closed:
			l.mu.Unlock()
			return nil, net.ErrClosed
		case !until.IsZero() && !time.Now().Before(until):
			l.mu.Unlock()
			return nil, os.ErrDeadlineExceeded
		case len(l.waiting) > 0:
			c := l.waiting[0]
			l.waiting = l.waiting[1:]
			l.mu.Unlock()
			return c, nil
		}
		l.mu.Unlock()
		waitFor(changed, until)
	}
}

// Close implements net.Listener. Connections that wait are cut.
func (l *listener) Close() error {
	l.network.mu.Lock()
	if l.network.doors[l.at.String()] == l {
		delete(l.network.doors, l.at.String())
	}
	l.network.mu.Unlock()
	var waiting []*Conn
	l.change(func() {
		l.closed = true
		waiting, l.waiting = l.waiting, nil
	})
	for _, c := range waiting {
		c.cut(false)
	}
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// SetDeadline bounds Accept.
func (l *listener) SetDeadline(t time.Time) error {
	l.change(func() { l.deadline = t })
	return nil
}
