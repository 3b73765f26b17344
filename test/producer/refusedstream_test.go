package producer_test

import (
	"testing"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/test/servers"
)

// A replica beyond the limit of streams has no stream of its own. The others of its name answer for it.
func TestReplicaWithoutAStreamSends(t *testing.T) {
	t.Parallel()
	a := coordinator(t, embeddedtest.Redis(t), func(_ *config.Config, b *app.Bounds) { b.AttendingPerProducer = 1 })
	markers := memory.New()
	if err := send(t, attending(t, markers, &servers.Log{}, a.GRPCAddr()), "1"); err != nil {
		t.Fatal(err)
	}
	if err := send(t, attending(t, markers, &servers.Log{}, a.GRPCAddr()), "2"); err != nil {
		t.Fatal(err)
	}
	awaitSendable(t, a, "2")
}
