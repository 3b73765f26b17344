package rabbitmq_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// Invariant: after Close no goroutine of the publisher runs, also with messages in flight. The test is not parallel, so
// no other publisher runs in the process.
func TestCloseWaitsForEveryGoroutine(t *testing.T) {
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	for round := range 10 {
		x := wire.TCP(t, wire.Host(t, url))
		config := rabbitmq.Config{URL: x.URL(url), ConfirmTimeout: 200 * time.Millisecond}
		p, err := rabbitmq.New(config)
		if err != nil {
			t.Fatal(err)
		}
		servers.Eventually(t, 30*time.Second, "messages are acknowledged", func() bool {
			return outcome(t, p, message(0, "e", "k")).Outcome == publish.Acked
		})
		// A channel is retired and late answers are waited for when Close comes.
		x.Hold()
		for _, r := range publishAll(t.Context(), p, messages(50, "e", "k")) {
			if r.Outcome == publish.Acked {
				t.Error("acknowledged by an unreachable broker")
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		if round%2 == 0 {
			cancel() // Close closes the connection at once
		}
		_ = p.Close(ctx) // an error says that the context has ended
		cancel()
		buffer := make([]byte, 1<<20)
		stacks := string(buffer[:runtime.Stack(buffer, true)])
		if strings.Contains(stacks, "broker/rabbitmq.(*") || strings.Contains(stacks, "ground/publish.(*") {
			t.Fatalf("round %d: a goroutine is left:\n%s", round, stacks)
		}
	}
}
