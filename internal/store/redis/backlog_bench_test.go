package redis_test

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

var backlogs = flag.String("backlogs", "10000,100000",
	"how many messages wait in BenchmarkBacklog, one size after the other")

// BenchmarkBacklog claims so many messages at once, so many times.
const claimAtOnce, claimsEach = 500, 10

// BenchmarkBacklog measures the cost of claiming and finishing messages while many wait: each batch, and the messages a
// second of a drain that does nothing else.
//
//	go test ./internal/store/redis -run '^$' -bench Backlog -benchtime 1x -timeout 60m -args -backlogs 10000,1000000
func BenchmarkBacklog(b *testing.B) {
	for _, state := range []halfmsg.State{halfmsg.Sendable, halfmsg.Pending} {
		for size := range strings.SplitSeq(*backlogs, ",") {
			waiting, err := strconv.Atoi(size)
			must.Succeed(b, err)
			b.Run(fmt.Sprintf("%s/%d", state, waiting), func(b *testing.B) { benchmarkBacklog(b, state, waiting) })
		}
	}
}

func benchmarkBacklog(b *testing.B, state halfmsg.State, waiting int) {
	server, filling := private(b)
	for range waiting / 1000 {
		names := stored(b, filling, 1000, time.Millisecond)
		if state == halfmsg.Sendable {
			commit(b, filling, names)
		}
	}
	// A store without recent calls from producers: otherwise the backlog yields.
	store, err := redisstore.New(b.Context(), redisstore.Config{URL: server.URL()}.WithDefaults())
	must.Succeed(b, err)
	defer store.Close()
	var claims []time.Duration
	cpu, begun, drained := cpuOf(b, server), time.Now(), 0
	for b.Loop() {
		for range claimsEach {
			at := time.Now()
			claimed := claim(b, store, state)
			claims = append(claims, time.Since(at))
			end(b, store, state, claimed)
			drained += len(claimed)
		}
	}
	took := time.Since(begun)
	slices.Sort(claims)
	b.ReportMetric(float64(claims[len(claims)/2].Microseconds())/1000, "ms/claim-of-500")
	b.ReportMetric(float64(drained)/took.Seconds(), "messages/s")
	b.ReportMetric((cpuOf(b, server)-cpu)*1e6/float64(drained), "redis-µs/message")
}

// commit makes messages SENDABLE and due.
func commit(b *testing.B, store *redisstore.Store, names []halfmsg.Name) {
	b.Helper()
	words := make([]halfmsg.Settlement, 0, len(names))
	for _, s := range store.Submit(b.Context(), names, time.Minute) {
		words = append(words, halfmsg.Settlement{Name: s.Claim.Name, Token: s.Claim.Token, Event: halfmsg.EventCommitted})
	}
	say(b, store, words)
}

func claim(b *testing.B, store *redisstore.Store, state halfmsg.State) (claims []halfmsg.Claim) {
	b.Helper()
	var err error
	if state == halfmsg.Sendable {
		claims, err = store.ClaimSendable(b.Context(), claimAtOnce, time.Minute)
	} else {
		claims, err = store.ClaimPending(b.Context(), map[string]int{"orders": claimAtOnce}, time.Minute)
	}
	if err != nil || len(claims) != claimAtOnce {
		b.Fatalf("claimed %d, %v", len(claims), err)
	}
	return claims
}

// end takes claimed messages to their end.
func end(b *testing.B, store *redisstore.Store, state halfmsg.State, claims []halfmsg.Claim) {
	b.Helper()
	event := halfmsg.EventAcked
	if state == halfmsg.Pending {
		event = halfmsg.EventRolledBack
	}
	words := make([]halfmsg.Settlement, 0, len(claims))
	for _, c := range claims {
		words = append(words, halfmsg.Settlement{
			Name: c.Name, Token: c.Token, Fingerprint: c.Fingerprint, Event: event, Backlog: true,
		})
	}
	say(b, store, words)
}

func say(b *testing.B, store *redisstore.Store, words []halfmsg.Settlement) {
	b.Helper()
	for _, r := range store.Settle(b.Context(), words) {
		if r.Err != nil {
			b.Fatal(r.Err)
		}
	}
}
