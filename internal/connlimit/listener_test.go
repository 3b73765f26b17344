package connlimit_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/msghandler/msghandler/internal/connlimit"
	"github.com/msghandler/msghandler/test/must"
)

// refusal is a refused connection.
type refusal struct {
	reason connlimit.Reason
	from   string
}

// open bounds a listener that accepts all connections.
func open(t *testing.T, most, perAddress int) (l *connlimit.Listener, accepted chan net.Conn, refused chan refusal) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	accepted, refused = make(chan net.Conn, 100), make(chan refusal, 100)
	l = connlimit.New(
		tcp,
		connlimit.Config{Max: most, PerAddress: perAddress, Refused: func(reason connlimit.Reason, from string) {
			refused <- refusal{reason, from}
		}},
	)
	var accepting sync.WaitGroup
	accepting.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		accepting.Wait()
	})
	return l, accepted, refused
}

// dial connects from one of this machine's addresses.
func dial(t *testing.T, to net.Listener, from byte) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}}
	conn, err := dialer.DialContext(t.Context(), "tcp", to.Addr().String())
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestConnectionsPastTheBoundsAreClosed(t *testing.T) {
	t.Parallel()
	l, accepted, refused := open(t, 3, 2)
	first, second := dial(t, l, 2), dial(t, l, 2)
	one, other := <-accepted, <-accepted
	third := dial(t, l, 2)
	if got := <-refused; got != (refusal{connlimit.Address, "127.0.0.2"}) {
		t.Errorf("the third of an address got %v", got)
	}
	if _, err := third.Read(make([]byte, 1)); !ended(err) {
		t.Errorf("its client sees %v", err)
	}
	dial(t, l, 3)
	<-accepted
	dial(t, l, 4)
	if got := <-refused; got != (refusal{connlimit.Total, "127.0.0.4"}) {
		t.Errorf("the fourth in all got %v", got)
	}
	_ = one.Close()
	_ = one.Close() // the second Close has no effect
	_ = first.Close()
	_ = second.Close()
	if n := l.Open(); n != 2 {
		t.Errorf("%d are open, want 2", n)
	}
	dial(t, l, 2)
	<-accepted
	dial(t, l, 2)
	if got := <-refused; got.reason != connlimit.Address {
		t.Errorf("closing a connection twice made room for two: %v", got)
	}
	_ = other.Close()
}

// ended reports whether the other side has closed a connection.
func ended(err error) bool {
	var at *net.OpError
	return errors.Is(err, io.EOF) || errors.As(err, &at) && !at.Timeout()
}

func TestDivide(t *testing.T) {
	t.Parallel()
	for descriptors, want := range map[int]connlimit.Share{
		256:     {96, 32, 48, 16, 256, true},
		1024:    {576, 192, 288, 96, 1024, false},
		1 << 20: {3840, 256, 1920, 128, 1 << 20, false},
		0:       {3840, 256, 1920, 128, 0, false},
		16:      {6, 2, 3, 1, 16, true},
	} {
		if got := connlimit.Divide(descriptors); got != want {
			t.Errorf("Divide(%d) = %+v, want %+v", descriptors, got, want)
		}
	}
}
