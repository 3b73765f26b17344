package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// unreachable is as long as gRPC's error for an unreachable producer.
const unreachable = `rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial tcp 10.0.0.17:9000: connect: connection refused"`

// BenchmarkOutage measures the cost of messages whose producer stays unreachable: a claim and a settlement each time.
// The messages' causes are all alike, or no two in a row are.
func BenchmarkOutage(b *testing.B) {
	for _, name := range []string{"alike", "varied"} {
		b.Run(name, func(b *testing.B) {
			server, store := private(b)
			names := stored(b, store, 100, time.Minute)
			run := 0
			for ; run < 2*halfmsg.MaxHappenings; run++ {
				hear(b, store, names, name, run)
			}
			cpu, first := cpuOf(b, server), run
			for b.Loop() {
				run++
				hear(b, store, names, name, run)
			}
			b.StopTimer()
			b.ReportMetric((cpuOf(b, server)-cpu)*1e6/float64((run-first)*len(names)), "redis-µs/message")
		})
	}
}

// BenchmarkBytes measures the memory in Redis of a message with a body of 1 KiB: without a timeline, with one line and
// with a full timeline.
func BenchmarkBytes(b *testing.B) {
	for b.Loop() {
		for _, lines := range []int{0, 1, halfmsg.MaxHappenings} {
			const n = 20000
			server, store := private(b)
			before := usedBy(b, server)
			for range n / 1000 {
				names := stored(b, store, 1000, time.Minute)
				for run := range lines {
					hear(b, store, names, "varied", run)
				}
			}
			b.ReportMetric(float64(usedBy(b, server)-before)/n, fmt.Sprintf("bytes/message-with-%d", lines))
		}
	}
}

func private(b *testing.B) (*servers.RedisServer, *redisstore.Store) {
	server := servers.Redis(b, "--appendfsync", "everysec")
	store, err := redisstore.New(b.Context(), redisstore.Config{URL: server.URL()}.WithDefaults())
	must.Succeed(b, err)
	b.Cleanup(func() { _ = store.Close() })
	return server, store
}

// lastID numbers the messages of these benchmarks.
var lastID int

// stored stores messages for a later Confirm.
func stored(b *testing.B, store *redisstore.Store, n int, after time.Duration) (names []halfmsg.Name) {
	var messages []halfmsg.Message
	for range n {
		lastID++
		name := halfmsg.Name{Producer: "orders", ID: fmt.Sprintf("%08d", lastID)}
		names = append(names, name)
		messages = append(messages, halfmsg.Message{
			Name: name, Exchange: "orders", RoutingKey: "paid", Body: make([]byte, 1024),
			CallbackTarget: "dns:///orders:9000", ConfirmAfter: after,
		})
	}
	for _, r := range store.Create(b.Context(), messages) {
		if r.Err != nil {
			b.Fatal(r.Err)
		}
	}
	return names
}

// hear claims messages and settles them as unreachable.
func hear(b *testing.B, store *redisstore.Store, names []halfmsg.Name, kind string, run int) {
	cause := unreachable
	if kind == "varied" {
		cause = fmt.Sprint(unreachable, run)
	}
	settlements := make([]halfmsg.Settlement, 0, len(names))
	for _, s := range store.Submit(b.Context(), names, time.Minute) {
		settlements = append(settlements, halfmsg.Settlement{
			Name: s.Claim.Name, Token: s.Claim.Token, Event: halfmsg.EventUnreachable, Cause: cause, After: time.Minute,
		})
	}
	for _, r := range store.Settle(b.Context(), settlements) {
		if r.Err != nil {
			b.Fatal(r.Err)
		}
	}
}

func usedBy(b *testing.B, server *servers.RedisServer) int {
	for line := range strings.Lines(server.CLI("info", "memory")) {
		if text, found := strings.CutPrefix(line, "used_memory:"); found {
			n, err := strconv.Atoi(strings.TrimSpace(text))
			must.Succeed(b, err)
			return n
		}
	}
	b.Fatal("no used_memory")
	return 0
}
