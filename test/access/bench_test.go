package access

import (
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/dev/bench/usage"
	"github.com/msghandler/msghandler/proto/certs"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	// rounds is odd, so that a median is a measured value.
	rounds = 5
	// calls are those of a round and identity; callsAtOnce of them are in flight.
	calls, callsAtOnce = 6000, 16
)

// BenchmarkIdentity measures what a caller's identity costs the coordinator for each call over TLS: nothing shown, a
// token, a certificate, a JWT. The identities take turns in each round. Run it with:
//
//	go test ./test/access -run '^$' -bench Identity -benchtime 1x
func BenchmarkIdentity(b *testing.B) {
	for b.Loop() {
		c := start(b, "MSGHANDLER_ACCESS_ANONYMOUS=true")
		all := []caller{
			{name: "nothing"},
			{name: "a token", token: c.token("bench", "--role=reader"), proved: true},
			{name: "a certificate", cert: c.cert(nil, "anna.ops.shop")},
			{name: "a JWT", token: c.issuer.JWT("anna", "shop", map[string]any{"roles": "reader"}), proved: true},
		}
		conns := make([]*grpc.ClientConn, len(all))
		for i, of := range all {
			c.awaitToken(of)
			conns[i] = c.dial(of)
			c.spend(conns[i], of) // warms up
		}
		spent := make([][]time.Duration, len(all))
		for round := range rounds {
			for i := range all {
				which := (round + i) % len(all)
				spent[which] = append(spent[which], c.spend(conns[which], all[which]))
			}
		}
		for i, of := range all {
			ratios := make([]float64, rounds)
			for round := range rounds {
				ratios[round] = float64(spent[i][round]) / float64(spent[0][round])
			}
			slices.Sort(ratios)
			slices.Sort(spent[i])
			b.Logf("%s: %v of CPU a call; to nothing %.3f (%.3f)", of.name, spent[i][rounds/2]/calls, ratios[rounds/2], ratios)
		}
	}
}

// spend is the CPU time that the coordinator spends on the calls of a round.
func (c *coordinator) spend(conn *grpc.ClientConn, of caller) time.Duration {
	c.t.Helper()
	admin, ctx := adminv1.NewAdminServiceClient(conn), certs.WithToken(c.t.Context(), of.token)
	coordinators := usage.Find("", map[string][]string{"coordinator": {c.grpc}})
	before := coordinators.Sample()["coordinator"].CPU
	var calling sync.WaitGroup
	for range callsAtOnce {
		calling.Go(func() {
			for range calls / callsAtOnce {
				// An unknown message costs the store as little as a call can.
				_, _ = admin.GetMessage(ctx, &adminv1.GetMessageRequest{Producer: "orders", Id: "1"})
			}
		})
	}
	calling.Wait()
	return coordinators.Sample()["coordinator"].CPU - before
}
