package faults

import (
	"net"
	"sync"
	"testing"
)

// gate is a way to a server that can be shut: what is under way then waits, as on a network that has come to a stop,
// and goes on when it is open again. Connections stay.
type gate struct {
	address           string
	requests, answers valve
	listener          net.Listener
	target            string
	group             sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
	ended bool
}

// valve lets bytes pass in one direction, or keeps them.
type valve struct {
	mu   sync.Mutex
	open chan struct{} // closed when it opens again; nil while it is open
}

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open == nil {
		v.open = make(chan struct{})
	}
}

func (v *valve) reopen() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.open != nil {
		close(v.open)
		v.open = nil
	}
}

// wait waits until it is open.
func (v *valve) wait() {
	v.mu.Lock()
	open := v.open
	v.mu.Unlock()
	if open != nil {
		<-open
	}
}

// newGate leads to the server at target until the test ends.
func newGate(t *testing.T, target string) *gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gate{address: listener.Addr().String(), listener: listener, target: target}
	g.group.Go(g.accept)
	t.Cleanup(g.end)
	return g
}

func (g *gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", g.target)
		if err != nil || !g.keep(client, server) {
			_ = client.Close()
			continue
		}
		g.group.Go(func() { pass(server, client, &g.requests) })
		g.group.Go(func() { pass(client, server, &g.answers) })
	}
}

// keep notes connections, so that they can be ended; it says no when that has been done.
func (g *gate) keep(conns ...net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ended {
		for _, c := range conns {
			_ = c.Close()
		}
		return false
	}
	g.conns = append(g.conns, conns...)
	return true
}

// end ends every connection and waits for all that passes.
func (g *gate) end() {
	_ = g.listener.Close()
	g.mu.Lock()
	g.ended = true
	for _, c := range g.conns {
		_ = c.Close()
	}
	g.mu.Unlock()
	g.requests.reopen()
	g.answers.reopen()
	g.group.Wait()
}

// pass copies from one connection to the other until either ends.
func pass(to, from net.Conn, v *valve) {
	defer to.Close()
	defer from.Close()
	chunk := make([]byte, 64<<10)
	for {
		n, err := from.Read(chunk)
		v.wait()
		if n > 0 {
			if _, err := to.Write(chunk[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
