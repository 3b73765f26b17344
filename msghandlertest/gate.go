package msghandlertest

import (
	"io"
	"net"
	"sync"
	"time"
)

// gate is a listener that can be shut: connections are cut then, and new ones are closed at once. The port is kept, so
// that nobody else takes it.
type gate struct {
	net.Listener

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

func newGate(l net.Listener) *gate { return &gate{Listener: l, conns: map[net.Conn]bool{}} }

// Accept returns the next connection that may pass.
func (g *gate) Accept() (net.Conn, error) {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if passing := g.enter(conn); passing != nil {
			return passing, nil
		}
		_ = conn.Close()
	}
}

func (g *gate) enter(conn net.Conn) net.Conn {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return nil
	}
	g.conns[conn] = true
	return &gateConn{Conn: conn, gate: g}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	for conn := range g.conns {
		_ = conn.Close()
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = false
}

// gateConn leaves its gate when it is closed.
type gateConn struct {
	net.Conn
	gate *gate
}

func (c *gateConn) Close() error {
	c.gate.mu.Lock()
	delete(c.gate.conns, c.Conn)
	c.gate.mu.Unlock()
	return c.Conn.Close()
}

// pipe is the way from the coordinator to one of its servers.
type pipe struct {
	gate   *gate
	target string
	group  sync.WaitGroup
}

func newPipe(target string) (*pipe, error) {
	listener, err := net.Listen("tcp", anyPort)
	if err != nil {
		return nil, err
	}
	p := &pipe{gate: newGate(listener), target: target}
	p.group.Go(p.serve)
	return p, nil
}

func (p *pipe) addr() string { return p.gate.Addr().String() }

func (p *pipe) serve() {
	for {
		client, err := p.gate.Accept()
		if err != nil {
			return
		}
		server, err := net.DialTimeout("tcp", p.target, time.Second)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.group.Go(func() { forward(client, server) })
		p.group.Go(func() { forward(server, client) })
	}
}

// forward copies until an end closes, and closes both.
func forward(to, from net.Conn) {
	_, _ = io.Copy(to, from) // ends with either connection
	_ = to.Close()
	_ = from.Close()
}

// close ends the pipe and all its connections.
func (p *pipe) close() {
	p.gate.shut()
	_ = p.gate.Listener.Close()
	p.group.Wait()
}
