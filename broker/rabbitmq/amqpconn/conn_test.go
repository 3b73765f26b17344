package amqpconn

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// counted is a connection that counts writes, and makes each write wait for a permit.
type counted struct {
	net.Conn
	permits chan struct{}
	writes  int
}

func (c *counted) Write(b []byte) (int, error) {
	<-c.permits
	c.writes++
	return c.Conn.Write(b)
}

// pair is both ends of a connection over loopback.
func pair(t *testing.T) (client, server net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	if client, err = net.Dial("tcp", listener.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = listener.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = client.Close(), server.Close() })
	return client, server
}

// Data that arrives during a write goes out with the next write, in order and before the end of the connection.
func TestWritesGoOutTogether(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	raw := &counted{Conn: client, permits: make(chan struct{})}
	c := newConn(raw, time.Minute)
	var want []byte
	for i := range 100 {
		part := bytes.Repeat([]byte{byte(i)}, 100)
		want = append(want, part...)
		if _, err := c.Write(part); err != nil {
			t.Fatal(err)
		}
	}
	close(raw.permits)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(server)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d of %d bytes arrived, %v", len(got), len(want), err)
	}
	if raw.writes > 2 {
		t.Errorf("100 writes went out in %d", raw.writes)
	}
}

// A write to a peer that does not read always ends, and the pending data are bounded.
func TestWriteToSilentPeerTimesOut(t *testing.T) {
	t.Parallel()
	client, _ := pair(t)
	c := newConn(client, 100*time.Millisecond)
	var err error
	for written := 0; err == nil; written += 64 << 10 {
		if written > 1<<30 {
			t.Fatal("1 GiB was accepted without a reader")
		}
		_, err = c.Write(make([]byte, 64<<10))
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if _, err := client.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the reader got %v", err)
	}
	if len(c.pending) > mostPending+64<<10 {
		t.Errorf("%d bytes are pending", len(c.pending))
	}
}

func TestHangUpDoesNotWait(t *testing.T) {
	t.Parallel()
	client, server := pair(t)
	raw := &counted{Conn: client, permits: make(chan struct{})}
	c := newConn(raw, time.Minute)
	if _, err := c.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	c.hangUp()
	if _, err := c.Write([]byte("b")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a write after it: %v", err)
	}
	if got, err := io.ReadAll(server); err != nil || len(got) > 0 {
		t.Errorf("the peer got %q, %v", got, err)
	}
	close(raw.permits)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
