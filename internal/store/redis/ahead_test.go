package redis_test

import (
	"bytes"
	"context"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// A coordinator that has not counted while the clock was ahead is alive, however far the others have counted.
func TestClockAheadEndsNoPausedCoordinator(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	one, paused := r.coordinator("one"), r.coordinator("paused")
	r.alive(one, paused)
	r.pass(30 * time.Minute)
	r.alive(one)
	r.pass(-30 * time.Minute)
	for range 3 {
		r.want(r.alive(paused, one))
		r.pass(5 * time.Second)
	}
	r.pass(silence)
	r.want(r.alive(one), "paused") // it ends now
}

// deafConn loses the replies to scripts while it is deaf.
type deafConn struct {
	net.Conn
	deaf *atomic.Bool
	runs atomic.Bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	if bytes.Contains(bytes.ToLower(b), []byte("evalsha")) {
		c.runs.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.runs.Load() && c.deaf.Load() {
		return 0, net.ErrClosed
	}
	return n, err
}

// The time since the last reply counts once, however many replies are lost.
func TestLostRepliesCountTimeOnce(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	pulse(t, r.coordinator("other")) // loads the script
	var deaf atomic.Bool
	store := open(t, redisstore.Config{
		URL: "redis://" + r.server.Addr(), Prefix: "msghandler", Shards: 2, Instance: "deaf",
		Dial: func(ctx context.Context, kind, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, kind, addr)
			return &deafConn{Conn: c, deaf: &deaf}, err
		},
	})
	deaf.Store(true)
	for range 3 {
		if _, err := store.Pulse(t.Context()); err == nil {
			t.Fatal("a lost reply is no error")
		}
	}
	deaf.Store(false)
	pulse(t, store)
	const key = "msghandler:{00b}:pulse"
	fields, err := r.server.HKeys(key)
	must.Succeed(t, err)
	for _, who := range fields {
		count, err := strconv.ParseInt(r.server.HGet(key, who), 10, 64)
		if ahead := time.Duration(count-r.now.UnixMilli()) * time.Millisecond; err != nil || ahead > time.Minute {
			t.Errorf("%s is %v ahead of the clock, %v", who, ahead, err)
		}
	}
}
