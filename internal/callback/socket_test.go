package callback

import (
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipe returns a socket and its replica, which reads all. Both end with the test.
func pipe(t *testing.T, all *sockets, at ends) (s *socket, replica net.Conn) {
	t.Helper()
	near, far := net.Pipe()
	s = &socket{Conn: addressed{near, at}, all: all}
	all.open.Store(at, s)
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, far) })
	t.Cleanup(func() {
		_, _ = s.Close(), far.Close()
		reading.Wait()
	})
	return s, far
}

// addressed is a connection between two ends.
type addressed struct {
	net.Conn
	at ends
}

type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

func (a addressed) LocalAddr() net.Addr  { return textAddr(a.at.local) }
func (a addressed) RemoteAddr() net.Addr { return textAddr(a.at.remote) }

// What needs no answer counts for nothing: a slow call on a connection that was idle does not end the calls beside it.
func TestOnlyCallsWithoutBytesAreMute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, replica := pipe(t, &sockets{muteAfter: muteAfter}, ends{"10.0.0.1:40000", "10.0.0.2:9000"})
		answer := func() {
			var sending sync.WaitGroup
			sending.Go(func() { _, _ = replica.Write([]byte("x")) })
			_, _ = s.Read(make([]byte, 1))
			sending.Wait()
		}
		slowCall := func() (mute bool) {
			began := time.Now()
			time.Sleep(3 * time.Second)
			return s.isMute(began)
		}
		for range 2 {
			answer()
			_, _ = s.Write([]byte("the answer to a ping"))
			time.Sleep(time.Hour)
			for call, want := range []bool{false, false, false, true} {
				if got := slowCall(); got != want {
					t.Errorf("mute after %d slow calls: %t", call+1, got)
				}
			}
		}
	})
}

// Connections to two replicas may have one address on this side.
func TestReplicasShareLocalAddress(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		all := &sockets{muteAfter: muteAfter}
		at := []ends{{"10.0.0.1:40000", "10.0.0.2:9000"}, {"10.0.0.1:40000", "10.0.0.3:9000"}}
		first, _ := pipe(t, all, at[0])
		second, _ := pipe(t, all, at[1])
		began := time.Now()
		time.Sleep(muteAfter)
		all.closeMute(at[0], began)
		if _, err := first.Write([]byte("x")); err == nil {
			t.Error("the mute connection is open")
		}
		if _, err := second.Write([]byte("x")); err != nil {
			t.Errorf("the connection to another replica: %v", err)
		}
	})
}
