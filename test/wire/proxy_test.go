package wire_test

import (
	"bufio"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// patience bounds every wait for an event that must come.
const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// echo is a server that answers every line with the line itself, and keeps the lines.
type echo struct {
	addr string
	mu   sync.Mutex
	got  string
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{addr: listener.Addr().String()}
	var group sync.WaitGroup
	group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			group.Go(func() { e.answer(conn) })
		}
	})
	t.Cleanup(func() { listener.Close(); group.Wait() })
	return e
}

func (e *echo) answer(conn net.Conn) {
	defer conn.Close()
	for reader := bufio.NewReader(conn); ; {
		line, err := reader.ReadString('\n')
		if err != nil {
			return
		}
		e.mu.Lock()
		e.got += line
		e.mu.Unlock()
		if _, err := conn.Write([]byte(line)); err != nil {
			return
		}
	}
}

func (e *echo) received() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.got
}

func dial(t *testing.T, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// say sends a line and returns the answer within that time.
func say(t *testing.T, conn net.Conn, line string, within time.Duration) (string, error) {
	t.Helper()
	if _, err := conn.Write([]byte(line + "\n")); err != nil {
		return "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		t.Fatal(err)
	}
	return bufio.NewReader(conn).ReadString('\n')
}

func wantEcho(t *testing.T, conn net.Conn, line string) {
	t.Helper()
	if got, err := say(t, conn, line, patience); got != line+"\n" || err != nil {
		t.Fatalf("said %q, got %q, %v", line, got, err)
	}
}

func TestCutRefusesConnectionsUntilRestored(t *testing.T) {
	t.Parallel()
	p := wire.TCP(t, newEcho(t).addr)
	conn := dial(t, p.Addr)
	wantEcho(t, conn, "one")
	p.Cut()
	if got, err := say(t, conn, "two", patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the cut: got %q, %v", got, err)
	}
	if other, err := net.Dial("tcp", p.Addr); err == nil {
		other.Close()
		t.Error("a new connection was not refused")
	}
	p.Restore()
	wantEcho(t, dial(t, p.Addr), "three")
}

func TestDisconnectAllowsNewConnections(t *testing.T) {
	t.Parallel()
	p := wire.TCP(t, newEcho(t).addr)
	conn := dial(t, p.Addr)
	wantEcho(t, conn, "one")
	p.Disconnect()
	if got, err := say(t, conn, "two", patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("disconnected: got %q, %v", got, err)
	}
	wantEcho(t, dial(t, p.Addr), "three")
}

func TestSilenceDropsBytesWithoutClosing(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	p := wire.TCP(t, server.addr)
	old := dial(t, p.Addr)
	wantEcho(t, old, "one")
	p.Silence()
	fresh := dial(t, p.Addr)
	for _, conn := range []net.Conn{old, fresh} {
		if got, err := say(t, conn, "two", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("in silence: got %q, %v", got, err)
		}
	}
	p.Restore()
	if got, err := say(t, old, "three", 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a silent connection speaks again: got %q, %v", got, err)
	}
	wantEcho(t, dial(t, p.Addr), "four")
	if got := server.received(); got != "one\nfour\n" {
		t.Errorf("the server got %q", got)
	}
}

func TestHeldBytesArriveAfterRestore(t *testing.T) {
	t.Parallel()
	server := newEcho(t)
	p := wire.TCP(t, server.addr)
	patient, gone := dial(t, p.Addr), dial(t, p.Addr)
	wantEcho(t, patient, "one")
	p.Hold()
	for conn, line := range map[net.Conn]string{patient: "two", gone: "three"} {
		if got, err := say(t, conn, line, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("held: got %q, %v", got, err)
		}
	}
	gone.Close()
	if got := server.received(); got != "one\n" {
		t.Errorf("held, and the server got %q", got)
	}
	p.Restore()
	if err := patient.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if got, err := bufio.NewReader(patient).ReadString('\n'); got != "two\n" || err != nil {
		t.Errorf("restored: got %q, %v", got, err)
	}
	servers.Eventually(t, patience, "the text sent by the closed connection", func() bool {
		return len(server.received()) == len("one\ntwo\nthree\n")
	})
}

func TestDelayAppliesInBothDirections(t *testing.T) {
	t.Parallel()
	p := wire.TCP(t, newEcho(t).addr)
	conn := dial(t, p.Addr)
	p.Delay(50 * time.Millisecond)
	begun := time.Now()
	wantEcho(t, conn, "one")
	if took := time.Since(begun); took < 100*time.Millisecond {
		t.Errorf("took %v", took)
	}
}
