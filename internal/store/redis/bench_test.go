package redis_test

import (
	"flag"
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

var (
	archiveFor = flag.Duration("archive", 0, "archive.retention of BenchmarkCycle; 0 is no archive")
	stats      = flag.Bool("stats", false, "print Redis's command statistics after BenchmarkCycle")
)

// BenchmarkCycle measures the hot path against a private server: batches of messages of 1 KiB, in one flow, beside idle
// messages.
func BenchmarkCycle(b *testing.B) {
	for _, name := range []string{"create/1", "create/8", "create/100", "cycle/1", "cycle/8", "cycle/100", "claims/100"} {
		b.Run(name, func(b *testing.B) {
			server := servers.Redis(b, "--appendfsync", "everysec")
			config := redisstore.Config{
				URL: server.URL(), Quota: fixed(1_000_000_000), Instance: "host-21896-OG5XG2",
				Archive: redisstore.Archive{Retention: *archiveFor, MaxMessages: 100_000, MaxBody: 64 << 10},
			}.WithDefaults()
			if strings.HasPrefix(name, "claims") {
				config = redisstore.Indexed(config)
			}
			store, err := redisstore.New(b.Context(), config)
			must.Succeed(b, err)
			defer store.Close()
			what, of, _ := strings.Cut(name, "/")
			size, _ := strconv.Atoi(of)
			messages, names := make([]halfmsg.Message, size), make([]halfmsg.Name, size)
			body := make([]byte, 1024)
			run := 0
			stand(b, store)
			cpu := cpuOf(b, server)
			b.ReportAllocs()
			for b.Loop() {
				run++
				for i := range messages {
					names[i] = halfmsg.Name{Producer: "orders", ID: fmt.Sprintf("%d-%d", run, i)}
					messages[i] = halfmsg.Message{
						Name: names[i], Exchange: "orders", RoutingKey: "paid", Body: body, ConfirmAfter: time.Minute,
					}
					if what == "claims" {
						messages[i].ConfirmAfter = 0
					}
				}
				for _, r := range store.Create(b.Context(), messages) {
					if r.Err != nil {
						b.Fatal(r.Err)
					}
				}
				switch what {
				case "cycle":
					finish(b, store, names)
				case "claims":
					claimAll(b, store, size)
				}
			}
			b.StopTimer()
			b.ReportMetric((cpuOf(b, server)-cpu)*1e6/float64(run*size), "redis-µs/message")
			if *stats {
				b.Log(server.CLI("info", "commandstats"))
			}
			b.ReportMetric(float64(run*size)/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// finish takes messages from Submit to the broker's acknowledgement.
func finish(b testing.TB, store *redisstore.Store, names []halfmsg.Name) {
	settlements := make([]halfmsg.Settlement, 0, len(names))
	for _, submitted := range store.Submit(b.Context(), names, time.Minute) {
		settlements = append(settlements, halfmsg.Settlement{
			Name: submitted.Claim.Name, Token: submitted.Claim.Token, Fingerprint: submitted.Claim.Fingerprint,
			Event: halfmsg.EventCommitted, Hold: time.Minute,
		})
	}
	for _, event := range []halfmsg.Event{halfmsg.EventCommitted, halfmsg.EventAcked} {
		for i := range settlements {
			settlements[i].Event = event
			if event == halfmsg.EventAcked {
				settlements[i].Hold = 0
			}
		}
		for _, r := range store.Settle(b.Context(), settlements) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}

// claimAll takes messages of the indexes from a pass of the confirm loop to the broker's acknowledgement.
func claimAll(b testing.TB, store *redisstore.Store, n int) {
	for _, event := range []halfmsg.Event{halfmsg.EventCommitted, halfmsg.EventAcked} {
		claim := func() ([]halfmsg.Claim, error) {
			return store.ClaimPending(b.Context(), map[string]int{"orders": n}, time.Minute)
		}
		if event == halfmsg.EventAcked {
			claim = func() ([]halfmsg.Claim, error) { return store.ClaimSendable(b.Context(), n, time.Minute) }
		}
		claims, err := claim()
		if err != nil || len(claims) != n {
			b.Fatalf("%d claims: %v", len(claims), err)
		}
		settlements := make([]halfmsg.Settlement, len(claims))
		for i, c := range claims {
			settlements[i] = halfmsg.Settlement{Name: c.Name, Token: c.Token, Fingerprint: c.Fingerprint, Event: event}
		}
		for _, r := range store.Settle(b.Context(), settlements) {
			if r.Err != nil {
				b.Fatal(r.Err)
			}
		}
	}
}

// cpuOf is the processor time of the server in seconds.
func cpuOf(b *testing.B, server *servers.RedisServer) float64 {
	b.Helper()
	total := 0.0
	for line := range strings.Lines(server.CLI("info", "cpu")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if key == "used_cpu_sys" || key == "used_cpu_user" {
			seconds, err := strconv.ParseFloat(value, 64)
			must.Succeed(b, err)
			total += seconds
		}
	}
	return total
}

// stand leaves messages in the indexes, as under load: Redis encodes small indexes in another way.
func stand(b *testing.B, store *redisstore.Store) {
	b.Helper()
	const size = 500
	messages, names := make([]halfmsg.Message, 2*size), make([]halfmsg.Name, size)
	for i := range messages {
		messages[i] = halfmsg.Message{
			Name: halfmsg.Name{Producer: "orders", ID: fmt.Sprint("standing", i)}, Exchange: "orders",
			ConfirmAfter: 24 * time.Hour,
		}
	}
	store.Create(b.Context(), messages)
	for i := range names {
		names[i] = messages[i].Name
	}
	words := make([]halfmsg.Settlement, 0, size)
	for _, submitted := range store.Submit(b.Context(), names, time.Minute) {
		words = append(words, halfmsg.Settlement{
			Name: submitted.Claim.Name, Token: submitted.Claim.Token, Event: halfmsg.EventCommitted, After: 24 * time.Hour,
		})
	}
	store.Settle(b.Context(), words)
}
