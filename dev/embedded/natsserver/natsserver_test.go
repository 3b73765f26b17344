package natsserver_test

import (
	"log/slog"
	"os"
	"testing"

	"github.com/msghandler/msghandler/dev/embedded/natsserver"
	"github.com/msghandler/msghandler/test/servers"
	client "github.com/msghandler/msghandler/test/servers/natsserver"
)

func TestOnlyLoopbackIsAllowed(t *testing.T) {
	t.Parallel()
	for _, addr := range []string{"0.0.0.0:4222", "192.0.2.1:4222", "4222", ""} {
		if s, err := natsserver.Start(addr, slog.Default()); err == nil {
			_ = s.Close()
			t.Errorf("started at %q", addr)
		}
	}
}

// A stream takes messages, and leaves no file behind.
func TestStreamsAreGoneAfterClose(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	addr := servers.Addresses(t, 1)[0]
	s, err := natsserver.Start(addr, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if s.URL() != "nats://"+addr {
		t.Errorf("the URL is %s", s.URL())
	}
	js := client.Stream(t, s.URL(), "ORDERS", "orders.>")
	if _, err := js.Publish(t.Context(), "orders.paid", []byte("42")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(temp)
	if err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
}
