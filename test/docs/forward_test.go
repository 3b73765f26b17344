package docs

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// bridge makes sockets in a new directory, one for each port, named as the port. A client of a socket is a client of
// the port's address. A session reaches the sockets, and nothing else outside its network.
func bridge(t *testing.T, addresses map[string]string) (dir string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ports") //nolint:usetesting // paths of t.TempDir are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for port, address := range addresses {
		listener, err := net.Listen("unix", filepath.Join(dir, port))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = listener.Close() })
		go relay(listener, "tcp", address)
	}
	return dir
}

// forwardPorts is the program that serves, within a session, the ports of a bridge's directory. The program prints a
// line as soon as the ports are served.
func forwardPorts(args []string) int {
	sockets, err := filepath.Glob(filepath.Join(args[0], "*"))
	for _, socket := range sockets {
		listener, failed := net.Listen("tcp", net.JoinHostPort("127.0.0.1", filepath.Base(socket)))
		if err = failed; err != nil {
			break
		}
		go relay(listener, "unix", socket)
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("ready")
	select {} // until the session ends
}

// relay makes each client of the listener a client of the address, until the listener is closed.
func relay(listener net.Listener, network, address string) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer client.Close()
			server, err := net.Dial(network, address)
			if err != nil {
				return
			}
			defer server.Close()
			var both sync.WaitGroup
			both.Go(func() { pass(server, client) })
			both.Go(func() { pass(client, server) })
			both.Wait()
		}()
	}
}

// pass copies all that comes, and then the end.
func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	if half, is := to.(interface{ CloseWrite() error }); is {
		_ = half.CloseWrite()
	}
}
