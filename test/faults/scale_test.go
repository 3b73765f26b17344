package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// Faults of size and time.
var scaleRows = []row{
	backlogRow(),
}

var backlogSize = flag.Int("backlog", 200_000, "F47: how many pending and how many sendable messages there are at the "+
	"start")

// usualLeases, and the time for an acknowledgement, are as by default. Where no owner dies but much waits in memory,
// the short ones of the other rows would end under messages on a busy machine, and copies would be nothing to wonder
// at.
var usualLeases = []string{
	"MSGHANDLER_CONFIRM_LEASE=30s", "MSGHANDLER_SEND_LEASE=30s", "MSGHANDLER_SEND_CONFIRM_TIMEOUT=10s",
}

// backlog is F47: so many pending and so many sendable messages that are all due when the coordinators start.
type backlog struct {
	pending, sendable *stub
	began             time.Time
	// bytes is the memory of a message in Redis.
	bytes float64
	// leases is how many messages were claimed at most at once.
	leases int64
}

func backlogRow() row {
	b := &backlog{}
	return row{
		name: "F47", world: options{bare: true, settings: usualLeases, before: b.fill}, copies: true,
		fault: b.watch, judge: b.judge,
	}
}

// fill puts the messages into Redis through the store, as coordinators without a broker would have left them.
func (b *backlog) fill(w *world) {
	w.t.Helper()
	b.pending, b.sendable = newStub(w, "pending", committed), newStub(w, "sendable", committed)
	b.pending.takes = 50 * time.Millisecond
	b.pending.serve()
	b.sendable.serve()
	store, err := redisstore.New(w.t.Context(), redisstore.Config{
		URL: w.redis.URL(), Prefix: "msghandler", Retention: 10 * time.Minute, Logger: quiet(),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	defer store.Close()
	before, began := usedMemory(w), time.Now()
	b.pending.had(0, *backlogSize)
	b.sendable.had(0, *backlogSize)
	var filling sync.WaitGroup
	errs := make(chan error, 4)
	for part := range cap(errs) {
		filling.Go(func() {
			errs <- b.fillPart(w.t.Context(), store, part**backlogSize/cap(errs), (part+1)**backlogSize/cap(errs))
		})
	}
	filling.Wait()
	for range cap(errs) {
		if err := <-errs; err != nil {
			w.t.Fatal(err)
		}
	}
	w.t.Logf("filled in %v", time.Since(began).Round(time.Second))
	b.bytes = float64(usedMemory(w)-before) / float64(2**backlogSize)
	consumeOne(w, queue, &rabbitmqconsumer.Declare{Exchange: exchange}) // the queue must be there before anybody publishes
	b.began = time.Now()
}

func (b *backlog) fillPart(ctx context.Context, store *redisstore.Store, from, to int) error {
	const lease = 10 * time.Second
	for ; from < to; from += 500 {
		next := min(from+500, to)
		if err := stored(store.Create(ctx, b.pending.halves(from, next))); err != nil {
			return err
		}
		halves := b.sendable.halves(from, next)
		if err := stored(store.Create(ctx, halves)); err != nil {
			return err
		}
		names := make([]halfmsg.Name, len(halves))
		for i := range halves {
			names[i] = halves[i].Name
		}
		var words []halfmsg.Settlement
		for _, s := range store.Submit(ctx, names, lease) {
			if s.Err != nil || s.Claim == nil {
				return fmt.Errorf("submitted: %v, %w", s.State, s.Err)
			}
			words = append(words, halfmsg.Settlement{
				Name: s.Claim.Name, Token: s.Claim.Token, Event: halfmsg.EventCommitted,
			})
		}
		if err := stored(store.Settle(ctx, words)); err != nil {
			return err
		}
	}
	return nil
}

// halves are the stub's half messages with these numbers, due at once.
func (s *stub) halves(from, to int) (messages []halfmsg.Message) {
	for n := from; n < to; n++ {
		messages = append(messages, halfmsg.Message{
			Name:     halfmsg.Name{Producer: s.name, ID: fmt.Sprintf("%06d", n)},
			Exchange: exchange, RoutingKey: s.name, Body: s.body(n), CallbackTarget: s.target,
		})
	}
	return messages
}

func stored(results []halfmsg.Result) error {
	for _, r := range results {
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}

// watch looks on until everything is delivered, while there is progress.
func (b *backlog) watch(_ context.Context, w *world, _ *rand.Rand) {
	w.ledger.Fault("the coordinators started with a backlog")
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr, Protocol: 2})
	defer client.Close()
	least, moved, told := 2**backlogSize, time.Now(), time.Now()
	for left := least; left > 0; left = w.ledger.UndeliveredOf("pending/") + w.ledger.UndeliveredOf("sendable/") {
		if left < least {
			least, moved = left, time.Now()
		}
		if time.Since(moved) > patience/2 {
			w.t.Fatalf("%d of the backlog are left, and none was delivered for %v\n%s", left, patience/2, w.tails())
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			w.t.Logf("%v after the start %d are left", time.Since(b.began).Round(time.Second), left)
		}
		b.leases = max(b.leases, leases(w, client))
		pause(w.t.Context(), 200*time.Millisecond)
	}
}

func (b *backlog) judge(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	for _, s := range []*stub{b.pending, b.sendable} {
		first := w.ledger.FirstCopy(s.name + "/").Sub(b.began)
		t.Logf("%s: %d at the start, the first delivered after %v", s.name, *backlogSize, first.Round(time.Millisecond))
		if first > 5*time.Second {
			t.Errorf("the first %s message was delivered %v after the start, not within 5 s", s.name, first)
		}
	}
	// Each coordinator may call a producer four times at once, hold 2,000 of its messages besides the messages of these
	// calls (4 times 200), and 5,000 of all for the broker besides the 4 batches of 500 under way and one more.
	const calls, claims = 4, 2000 + 4*200 + 5000 + 5*500
	n, lost := len(w.coordinators), unanswered(w)
	t.Logf("at most %d Confirm calls at once, %d claimed at once, %.0f bytes a message in Redis; Redis left %d calls "+
		"unanswered",
		b.pending.peak.Load(), b.leases, b.bytes, lost)
	// On a busy machine such a load alone can keep Redis silent for longer than any timeout. Then the holder of a claim
	// is unknown until the leases end, and a copy may follow. The broker may also answer after the timeout, which makes
	// one copy of each unanswered message. Nothing else explains a copy.
	unsure := w.published("unsure")
	t.Logf("%d further copies; the broker left %d publishes unanswered", w.ledger.Further(), unsure)
	if further := w.ledger.Further(); further > unsure && lost == 0 {
		t.Errorf("%d further copies, and Redis answered every call; %d words came after their lease",
			further, w.counted(`msghandler_moves_total{fate="lease_lost"}`))
	}
	if peak := b.pending.peak.Load(); peak == 0 || peak > int64(n*calls) {
		t.Errorf("%d Confirm calls were under way at once; %d may be", peak, n*calls)
	}
	if most := int64(n*claims + lost*2000); b.leases == 0 || b.leases > most {
		t.Errorf("%d messages were claimed at once; %d may be", b.leases, most)
	}
	for _, c := range w.coordinators {
		most := highWater(t, c.Cmd.Process.Pid)
		t.Logf("a coordinator's memory was %d MiB at most", most>>20)
		if most > 256<<20 {
			t.Errorf("a coordinator took %d MiB", most>>20)
		}
	}
}

// unanswered counts how often a coordinator waited for Redis in vain.
func unanswered(w *world) (n int) {
	w.t.Helper()
	for _, c := range w.coordinators {
		text, err := os.ReadFile(c.log)
		if err != nil {
			w.t.Fatal(err)
		}
		n += strings.Count(string(text), halfmsg.ErrUncertain.Error())
	}
	return n
}

// leases counts the messages with a lease holder.
func leases(w *world, client *redis.Client) (n int64) {
	w.t.Helper()
	pipe := client.Pipeline()
	for _, producer := range []string{"pending", "sendable", "forgetful", "kept"} {
		pipe.HLen(w.t.Context(), "msghandler:{00}:"+producer+":leases")
	}
	lengths, err := pipe.Exec(w.t.Context())
	if err != nil && !errors.Is(err, redis.Nil) {
		w.t.Fatal(err)
	}
	for _, l := range lengths {
		n += l.(*redis.IntCmd).Val()
	}
	return n
}

// usedMemory is the memory that Redis reports as used.
func usedMemory(w *world) int64 {
	w.t.Helper()
	for line := range strings.Lines(w.redis.CLI("INFO", "memory")) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), "used_memory:"); is {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				w.t.Fatal(err)
			}
			return n
		}
	}
	w.t.Fatal("Redis does not tell its memory")
	return 0
}

// highWater is the most memory that a process ever had.
func highWater(t *testing.T, pid int) int64 {
	t.Helper()
	var kib int64
	if _, err := fmt.Sscan(statusOf(t, pid, "VmHWM"), &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// statusOf reads what the kernel says of a process.
func statusOf(t *testing.T, pid int, field string) string {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, is := strings.CutPrefix(line, field+":"); is {
			return strings.TrimSpace(value)
		}
	}
	t.Fatalf("the kernel does not say %s of process %d", field, pid)
	return ""
}
