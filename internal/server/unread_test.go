package server_test

import (
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/server"
)

// linesWith returns the lines of a log that hold a text.
func linesWith(log *logged, text string) (all []string) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, text) {
			all = append(all, line)
		}
	}
	return all
}

func TestRequestsRefusedUnreadAreLogged(t *testing.T) {
	t.Parallel()
	log := &logged{}
	h := open(t, func(c *server.Config) {
		c.Limits = server.Limits{Bytes: 4 << 20}.WithCalls(20)
		c.Logger = slog.New(slog.NewTextHandler(log, nil))
	})
	want := func(text string, attributes ...string) {
		t.Helper()
		lines := linesWith(log, text)
		if len(lines) != 1 {
			t.Fatalf("%d lines with %q, want one:\n%s", len(lines), text, log)
		}
		for _, a := range append(attributes, "level=WARN", "call=/msghandler.v1.") {
			if !strings.Contains(lines[0], a) {
				t.Errorf("no %s in %s", a, lines[0])
			}
		}
	}
	for range 3 {
		_, err := h.producers.SendHalfMessage(t.Context(), good("1"), grpc.UseCompressor("gzip"))
		wantCode(t, err, codes.Unimplemented)
	}
	want("compressed request refused unread; ", "from=127.0.0.1:")

	conn := h.dialFrom(t, attacker)
	announce(t, conn, sendHalf, 2<<20)
	wantAnswer(t, conn, announce(t, conn, sendHalf, 2<<20), codes.ResourceExhausted)
	want("too many announced bytes", "from=127.0.0.2:", "largest_holder=127.0.0.2", "held=2097152")

	for range 30 {
		if _, err := conn.Begin(sendHalf); err != nil {
			t.Fatal(err)
		}
	}
	settled(t, conn)
	want("too many unfinished calls", "from=127.0.0.2:", "largest_holder=127.0.0.2")
	if lines := linesWith(log, "a call failed"); len(lines) > 0 {
		t.Errorf("a refused request is logged twice: %s", lines)
	}
}
