package rabbitmq_test

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy stands between a publisher and the broker. The proxy can stop passing anything on, as a network that drops
// packets: both sides still believe in their connection.
type proxy struct {
	listener net.Listener
	target   string
	group    sync.WaitGroup
	// sent counts the bytes that came for the broker, also while they are kept back.
	sent atomic.Int64

	mu      sync.Mutex
	stalled chan struct{} // closed when traffic flows again; nil while traffic flows
	stopped bool
	conns   map[net.Conn]struct{}
}

// startProxy returns a proxy in front of the broker at the URL, and the URL through the proxy. wrap may replace the
// listener; nil keeps the listener.
func startProxy(t testing.TB, url string, wrap func(net.Listener) net.Listener) (*proxy, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if wrap != nil {
		listener = wrap(listener)
	}
	_, rest, _ := strings.Cut(url, "@")
	target, _, _ := strings.Cut(rest, "/")
	x := &proxy{listener: listener, target: target, conns: make(map[net.Conn]struct{})}
	x.group.Go(x.accept)
	t.Cleanup(x.stop)
	return x, strings.Replace(url, target, address, 1)
}

func (x *proxy) accept() {
	for {
		client, err := x.listener.Accept()
		if err != nil {
			return
		}
		broker, err := net.Dial("tcp", x.target)
		if err != nil || !x.add(client, broker) {
			_ = client.Close()
			continue
		}
		x.group.Go(func() { x.pass(broker, client, &x.sent) })
		x.group.Go(func() { x.pass(client, broker, new(atomic.Int64)) })
	}
}

func (x *proxy) add(conns ...net.Conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range conns {
		if x.stopped {
			_ = c.Close()
		}
		x.conns[c] = struct{}{}
	}
	return !x.stopped
}

// pass copies until either side ends, and then ends the other.
func (x *proxy) pass(to io.WriteCloser, from io.ReadCloser, count *atomic.Int64) {
	defer to.Close()
	defer from.Close()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		count.Add(int64(n))
		if wait := x.whenFlowing(); wait != nil {
			<-wait
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

func (x *proxy) whenFlowing() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.stalled
}

// stall stops the traffic of all connections, new ones included.
func (x *proxy) stall() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stalled == nil {
		x.stalled = make(chan struct{})
	}
}

// flow undoes stall.
func (x *proxy) flow() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stalled != nil {
		close(x.stalled)
		x.stalled = nil
	}
}

func (x *proxy) stop() {
	x.flow()
	_ = x.listener.Close()
	x.mu.Lock()
	x.stopped = true
	for c := range x.conns {
		_ = c.Close()
	}
	x.mu.Unlock()
	x.group.Wait()
}
