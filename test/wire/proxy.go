package wire

import (
	"crypto/tls"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Proxy stands in front of a server that speaks over TCP. Its methods are safe for concurrent use.
type Proxy struct {
	// Addr is the proxy's address: HOST:PORT.
	Addr string

	t      testing.TB
	target string
	newTap func() tap
	group  sync.WaitGroup
	// secure is the TLS that clients speak; nil is none.
	secure *tls.Config
	// received counts the bytes of clients.
	received atomic.Int64

	mu       sync.Mutex
	listener net.Listener // nil while the proxy refuses connections
	links    map[*link]bool
	mode     mode
	changed  chan struct{} // closed with every change of mode
	delay    time.Duration
	hook     Hook
	closed   bool
}

// mode is a proxy's treatment of all traffic.
type mode int

const (
	passing mode = iota
	cutOff
	silent
	holding
)

// TCP stands in front of any server and understands nothing of the traffic.
func TCP(t testing.TB, addr string) *Proxy {
	t.Helper()
	return start(t, addr, func() tap { return blind{} })
}

// TLS is TCP for clients that speak TLS to the proxy. The server speaks none.
func TLS(t testing.TB, addr string, certificate tls.Certificate) *Proxy {
	t.Helper()
	p := prepare(t, addr, func() tap { return blind{} })
	p.secure = &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}
	return p.open()
}

// Rewrite stands in front of any server and replaces a text in the server's bytes, such as its version. Both texts
// have the same length, so that lengths on the wire stay right.
func Rewrite(t testing.TB, addr, from, to string) *Proxy {
	t.Helper()
	if len(from) != len(to) {
		t.Fatalf("%q and %q differ in length", from, to)
	}
	return start(t, addr, func() tap { return rewriter{from: []byte(from), to: []byte(to)} })
}

// Redis stands in front of a redis-server whose clients speak RESP 2 and do not subscribe.
func Redis(t testing.TB, addr string) *Proxy {
	t.Helper()
	known, err := readScripts()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, addr, func() tap { return &respTap{scripts: known} })
}

// RabbitMQ stands in front of a broker of AMQP 0-9-1.
func RabbitMQ(t testing.TB, addr string) *Proxy {
	t.Helper()
	return start(t, addr, func() tap { return newAMQPTap() })
}

func start(t testing.TB, target string, newTap func() tap) *Proxy {
	t.Helper()
	return prepare(t, target, newTap).open()
}

func prepare(t testing.TB, target string, newTap func() tap) *Proxy {
	return &Proxy{t: t, target: target, newTap: newTap, links: map[*link]bool{}, changed: make(chan struct{})}
}

// open listens until the test ends.
func (p *Proxy) open() *Proxy {
	p.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		p.t.Fatal(err)
	}
	p.Addr = listener.Addr().String()
	p.serve(listener)
	p.t.Cleanup(p.close)
	return p
}

// URL is the server's URL with the proxy's address in it.
func (p *Proxy) URL(server string) string {
	p.t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		p.t.Fatal(err)
	}
	return strings.Replace(server, u.Host, p.Addr, 1)
}

// Host is the HOST:PORT in a server's URL.
func Host(t testing.TB, server string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// On has a hook decide about everything from now on; nil lets everything pass.
func (p *Proxy) On(hook Hook) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hook = hook
}

// Cut closes all connections and refuses new ones.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(cutOff)
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
	for l := range p.links {
		l.close()
	}
}

// Disconnect closes all connections, and drops the bytes on their way. New connections pass.
func (p *Proxy) Disconnect() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.close()
	}
}

// Silence drops all bytes, in both directions, and closes nothing: the connections are half-open. The open
// connections stay dead after Restore, as with a router that has forgotten them.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(silent)
	for l := range p.links {
		l.mute()
	}
}

// Hold keeps back all bytes, in both directions. The bytes arrive after Restore, however late and even without a
// waiting reader, as with a network that comes back.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(holding)
}

// Received counts the bytes that clients have sent, also those that Hold keeps back.
func (p *Proxy) Received() int64 { return p.received.Load() }

// Delay makes everything take so much longer, one thing after the other on each connection.
func (p *Proxy) Delay(by time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = by
}

// Restore ends Cut, Silence, Hold and Delay. The hook stays.
func (p *Proxy) Restore() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turn(passing)
	p.delay = 0
	if p.listener != nil || p.closed {
		return
	}
	listener, err := net.Listen("tcp", p.Addr)
	if err != nil {
		p.t.Errorf("the proxy cannot listen again: %v", err)
		return
	}
	p.serve(listener)
}

// turn changes the mode; p.mu is held.
func (p *Proxy) turn(to mode) {
	p.mode = to
	close(p.changed)
	p.changed = make(chan struct{})
}

// serve accepts on a listener until it is closed.
func (p *Proxy) serve(listener net.Listener) {
	if p.secure != nil {
		listener = tls.NewListener(listener, p.secure)
	}
	p.listener = listener
	p.group.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.group.Go(func() { p.connect(client) })
		}
	})
}

// connect joins a client with a connection to the server, until either of them ends.
func (p *Proxy) connect(client net.Conn) {
	server, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	l := &link{proxy: p, client: client, server: server, tap: p.newTap()}
	if !p.enter(l) {
		l.close()
		return
	}
	var both sync.WaitGroup
	both.Go(func() { l.pump(Request, client, server) })
	both.Go(func() { l.pump(Reply, server, client) })
	both.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) enter(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.mode == cutOff {
		return false
	}
	if p.mode == silent {
		l.mute()
	}
	p.links[l] = true
	return true
}

// close ends the proxy and all its connections.
func (p *Proxy) close() {
	p.Cut()
	p.mu.Lock()
	p.closed = true
	p.turn(passing) // a held reader or writer finds the connection closed
	p.mu.Unlock()
	p.group.Wait()
}
