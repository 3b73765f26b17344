package callback_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// freezer is a listener of a process that the system can stop: its connections stay open, and say nothing then.
type freezer struct {
	net.Listener
	frozen *atomic.Bool
}

func (f freezer) Accept() (net.Conn, error) {
	conn, err := f.Listener.Accept()
	return freezing{conn, f.frozen}, err
}

type freezing struct {
	net.Conn
	frozen *atomic.Bool
}

func (f freezing) Write(b []byte) (int, error) {
	if f.frozen.Load() {
		return len(b), nil
	}
	return f.Conn.Write(b)
}

// A stopped process keeps its connections, and takes new ones: calls must go to the other replicas.
func TestMuteReplicaIsLeftOut(t *testing.T) {
	t.Parallel()
	well, stopped := &business{confirm: committed}, &business{confirm: committed}
	var frozen atomic.Bool
	address := serveOn(t, stopped, func(l net.Listener) net.Listener { return freezer{l, &frozen} })
	c := client(t, callback.Config{
		Allow: []string{"orders.svc:9000"}, Networks: []string{"127.0.0.0/8"}, Timeout: 100 * time.Millisecond,
	}.WithDialOptions(named(serve(t, well), address)).WithMuteAfter(300*time.Millisecond))
	target := halfmsg.Target{Producer: "orders", Address: "orders.svc:9000"}
	ask := func() error {
		_, err := c.Confirm(t.Context(), target, []string{"1"}, false)
		return err
	}
	eventually(t, "both replicas answer", func() bool { return ask() == nil && well.calls() > 0 && stopped.calls() > 0 })
	frozen.Store(true)
	answered := 0
	eventually(t, "20 calls in a row are answered", func() bool {
		if answered++; ask() != nil {
			answered = 0
		}
		return answered == 20
	})
}

// A Confirm that hangs is reported as what it is, by whichever server: with gRPC's own limit of pings too.
func TestHungConfirmShowsItsTimeOut(t *testing.T) {
	t.Parallel()
	b := &business{confirm: func(
		ctx context.Context, _ *msghandlerv1.ConfirmRequest,
	) (*msghandlerv1.ConfirmResponse, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	c := client(t, callback.Config{Timeout: 50 * time.Millisecond}.WithMuteAfter(100*time.Millisecond))
	to := halfmsg.Target{Producer: "orders", Address: serve(t, b)}
	for range 20 {
		_, err := c.Confirm(t.Context(), to, []string{"1"}, false)
		if err == nil || !strings.Contains(err.Error(), "no answer within") {
			t.Fatalf("got %v", err)
		}
	}
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}
