// Package connlimit bounds how many connections a listener has open, in all and from each address.
package connlimit

import (
	"net"
	"net/netip"
	"sync"
)

// Reason says why a connection was refused.
type Reason string

// Reasons.
const (
	// Total: the listener has as many connections open as it may.
	Total Reason = "total"
	// Address: one address has as many open as it may.
	Address Reason = "address"
)

// Reasons lists why connections are refused.
func Reasons() []Reason { return []Reason{Total, Address} }

// Config bounds a Listener.
type Config struct {
	// Max is how many connections may be open. Required.
	Max int
	// PerAddress is how many of them may come from one IP address. Required.
	PerAddress int
	// Refused is called for each refused connection, with its address. Refused must not block. Required.
	Refused func(reason Reason, from string)
}

// Listener closes connections past its bounds as soon as they are accepted, and leaves none in the backlog: there
// honest clients would wait behind them without an answer. A Listener is safe for concurrent use.
type Listener struct {
	net.Listener
	config Config

	mu     sync.Mutex
	open   int
	byAddr map[netip.Addr]int
}

// New bounds a listener.
func New(listener net.Listener, config Config) *Listener {
	return &Listener{Listener: listener, config: config, byAddr: map[netip.Addr]int{}}
}

// Open is how many connections are open.
func (l *Listener) Open() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// Accept implements net.Listener. It returns the next connection within the bounds.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from := AddressOf(accepted)
		reason, ok := l.enter(from)
		if ok {
			return &conn{Conn: accepted, leave: func() { l.leave(from) }}, nil
		}
		_ = accepted.Close()
		l.config.Refused(reason, from.String())
	}
}

func (l *Listener) enter(from netip.Addr) (reason Reason, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.byAddr[from] >= l.config.PerAddress:
		return Address, false
	case l.open >= l.config.Max:
		return Total, false
	}
	l.open++
	l.byAddr[from]++
	return "", true
}

func (l *Listener) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.byAddr[from]--; l.byAddr[from] == 0 {
		delete(l.byAddr, from)
	}
}

// AddressOf is where a connection comes from, without its port. In IPv6 one host has a whole /64 to choose
// from. The result is the zero Addr where the connection has no IP address, as for a Unix socket.
func AddressOf(c net.Conn) netip.Addr {
	at, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	addr := at.Addr().Unmap().WithZone("")
	if network, err := addr.Prefix(64); err == nil && addr.Is6() {
		return network.Addr()
	}
	return addr
}

// conn leaves its listener on Close.
type conn struct {
	net.Conn
	once  sync.Once
	leave func()
}

// Close implements net.Conn.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.once.Do(c.leave)
	return err
}
