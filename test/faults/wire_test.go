package faults

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/test/wire"
)

// Faults on the way: lost calls, and a coordinator that is cut off from Redis.
var wireRows = []row{
	loseRow("SendHalfMessage"), loseRow("SendHalfMessages"), loseRow("Submit"), loseRow("SubmitAll"), loseRow("Rollback"),
	loseRow("Confirm"), loseRow("DeleteBusiness"),
	cutOffRow("cut", (*wire.Proxy).Cut, judgeCutOff), cutOffRow("silent", (*wire.Proxy).Silence, judgeCutOff),
	cutOffRow("held", (*wire.Proxy).Hold, judgeHeld),
	{
		name: "F06_unanswered", alone: true, world: options{relayed: true, settings: oneQuestion}, users: unansweredUsers,
		fault: answersAreLate, judge: wereAskedForLong,
	},
	{name: "F35_slow", copies: true, world: options{wired: true, settings: patient}, fault: slowDown},
}

// patient postpones the last Confirm call: a call without an answer takes its caller five seconds, and the message
// must not be given up meanwhile.
var patient = []string{"MSGHANDLER_CONFIRM_ATTEMPTS=15"}

// cutOffRow separates a coordinator from Redis in one way.
func cutOffRow(name string, how func(*wire.Proxy), judge func(*testing.T, *world, *load, End)) row {
	return row{
		name: "F35_" + name, copies: true, world: options{wired: true, settings: patient}, fault: cutOff(how), judge: judge,
	}
}

// loseRow loses calls of one method.
func loseRow(method string) row {
	relayed := options{relayed: true, settings: patient}
	// One deletion in sixty is lost five times in a row, and is then left to the producer.
	return row{
		name: "F06_" + method, leavesMarkers: method == "DeleteBusiness", world: relayed, fault: lose(method),
		judge: judgeLosses,
	}
}

// losses are the lost calls of a method.
type losses struct {
	mu     sync.Mutex
	random *rand.Rand
	method string
	lost   map[wire.Phase]int
}

// lose loses of a method's calls every fourth request and every fourth reply: most with an error, some without
// a word.
func lose(method string) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, random *rand.Rand) {
		l := &w.wiring.losses
		l.random, l.method, l.lost = random, method, map[wire.Phase]int{}
		w.on(l.observe)
		w.insist(ctx)
		w.on(nil)
	}
}

// insist sends messages without the SDK, one call each, and waits for their delivery, until the context ends.
func (w *world) insist(ctx context.Context) {
	var sending sync.WaitGroup
	for i, c := range w.coordinators {
		sending.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				id := fmt.Sprintf("direct-%d-%06d", i, n)
				if err := c.direct.insist(w.t.Context(), id); err != nil {
					w.t.Errorf("%s cannot be delivered: %v", id, err)
				}
				pause(ctx, 20*time.Millisecond)
			}
		})
	}
	sending.Wait()
}

func (l *losses) observe(_ *coordinator, e wire.Event) wire.Act {
	if e.Name != l.method {
		return wire.Pass
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	draw := l.random.IntN(100)
	if draw >= 25 {
		return wire.Pass
	}
	l.lost[e.Phase]++
	if draw < 3 {
		return wire.Silence
	}
	return wire.Cut
}

func judgeLosses(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	l := &w.wiring.losses
	t.Logf("of %s %d requests and %d replies were lost", l.method, l.lost[wire.Request], l.lost[wire.Reply])
	if l.lost[wire.Request] == 0 || l.lost[wire.Reply] == 0 {
		t.Error("nothing was lost in a direction")
	}
}

// unansweredSends are users of the SDK who get no answer to their half messages, and how often they were asked
// meanwhile.
type unansweredSends struct {
	services []*service
	mu       sync.Mutex
	asked    map[string]int
}

func unansweredUsers(w *world) []user {
	kept, shop := newService(w, "unanswered", memory.New()), newShop(w, "unanswered-sql", newSQLite(w.t))
	w.wiring.unanswered.services = []*service{kept, shop.service}
	return []user{kept, shop}
}

// enoughQuestions are the first Confirm call, the last, and two more.
const enoughQuestions = 4

// answersAreLate loses every answer to a stored half message until its producer has been asked for longer than the
// coordinators wait for an ignorant producer. Its Send notices nothing, and its business runs.
func answersAreLate(ctx context.Context, w *world, _ *rand.Rand) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	u := &w.wiring.unanswered
	u.asked = map[string]int{}
	w.on(u.observe)
	var sending sync.WaitGroup
	for _, s := range u.services {
		d := deed{id: "1", key: s.key("1"), body: bodyOf("1", 1<<10)}
		sending.Go(func() {
			s.sending(d)
			if s.expect(d.key, s.send(ctx, s.message(d), d), nil) {
				s.ledger.Decide(d.key, Committed)
			}
		})
	}
	sending.Wait()
}

func (u *unansweredSends) observe(_ *coordinator, e wire.Event) wire.Act {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range e.Messages {
		switch {
		case e.Name == "Confirm" && e.Phase == wire.Request:
			u.asked[m.Key]++
		case e.Name == "SendHalfMessages" && e.Phase == wire.Reply && u.asked[m.Key] < enoughQuestions:
			return wire.Cut
		}
	}
	return wire.Pass
}

func wereAskedForLong(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	u := &w.wiring.unanswered
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, s := range u.services {
		if n := u.asked[s.key("1")]; n < enoughQuestions {
			t.Errorf("%s was asked about %d times: the row proves nothing", s.key("1"), n)
		}
	}
}

// cutOffFor is longer than the leases, and ends while the second try to store a verdict is still under way.
const cutOffFor = 9 * time.Second

// cutOff separates one coordinator from Redis at the moment of storing a verdict, for longer than its leases last,
// and repairs the connection. The others go on meanwhile, and afterwards so does the coordinator.
func cutOff(how func(*wire.Proxy)) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		pause(ctx, time.Second)
		c, parted := w.coordinators[0], make(chan struct{})
		var once sync.Once
		w.on(func(by *coordinator, e wire.Event) wire.Act {
			if by == c && e.Phase == wire.Request && slices.ContainsFunc(e.Messages, isVerdict) {
				once.Do(func() {
					how(c.redis)
					held, _ := w.wiring.bereave(c)
					w.ledger.Fault(fmt.Sprintf("%s is cut off from Redis, with %d messages in its hands", c.grpc, held))
					close(parted)
				})
			}
			return wire.Pass
		})
		select {
		case <-parted:
		case <-time.After(patience):
			w.t.Fatal("the coordinator stores no verdict")
		}
		_, _, before := w.ledger.Totals()
		wait(cutOffFor)
		_, _, after := w.ledger.Totals()
		w.wiring.meanwhile = after - before
		c.redis.Restore()
		w.ledger.Fault("repaired")
		c.Ready(c.http)
		w.goesOn(c)
	}
}

// slowBy is the delay of each answer of a slow Redis, and slowFor the duration of the fault: longer than the leases.
const slowBy, slowFor = 700 * time.Millisecond, 10 * time.Second

// slowDown delays every byte between one coordinator and Redis. No party may repeat a write because of the delay.
func slowDown(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	c := w.coordinators[0]
	c.redis.Delay(slowBy)
	w.ledger.Fault(c.grpc + " and Redis reach each other late")
	begun := time.Now()
	if err := c.direct.insist(w.t.Context(), "slow"); err != nil {
		w.t.Errorf("a message by way of the slow coordinator: %v", err)
	}
	if took := time.Since(begun); took < slowBy {
		w.t.Errorf("the message was delivered after %v: nothing was slow", took)
	}
	wait(slowFor - time.Since(begun))
	c.redis.Restore()
	w.ledger.Fault("Redis answers at once")
}

func isVerdict(m wire.Message) bool { return m.Word == "committed" }

// goesOn has some messages go all of their way through one coordinator.
func (w *world) goesOn(c *coordinator) {
	w.t.Helper()
	for n := range 20 {
		id := fmt.Sprintf("direct-%06d", n)
		if code := c.direct.send(w.t.Context(), id); code != codes.OK {
			w.t.Errorf("%s after the repair: SendHalfMessage returns %v", c.grpc, code)
		}
		if err := c.direct.deliver(w.t.Context(), id); err != nil {
			w.t.Errorf("%s after the repair: Submit returns %v", c.grpc, err)
		}
	}
}

// judgeCutOff demands that others took over and went on.
func judgeCutOff(t *testing.T, w *world, _ *load, _ End) {
	t.Helper()
	taken, longest := w.wiring.takeovers()
	t.Logf("%d taken over, the last after %v; %d copies delivered meanwhile; %d words of the one cut off refused, %d not "+
		"stored",
		taken, longest, w.wiring.meanwhile, w.fates(w.coordinators[0], "lease_lost"), w.fates(w.coordinators[0], "unstored"))
	if taken == 0 || longest > takeoverLimit {
		t.Errorf("%d taken over, the last after %v; some must be, within %v", taken, longest, takeoverLimit)
	}
	loaded := min(cutOffFor, *length-time.Second) // the load ends sooner
	if least := int(loaded.Seconds()) * *rate / 2; w.wiring.meanwhile < least {
		t.Errorf("the others did not go on: %d copies meanwhile, at least %d are wanted", w.wiring.meanwhile, least)
	}
}

// judgeHeld demands that the late writes of the separated coordinator were refused, and counted.
func judgeHeld(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	judgeCutOff(t, w, l, end)
	if w.fates(w.coordinators[0], "lease_lost") == 0 {
		t.Error("no late word was refused")
	}
}

// fates counts the owner's outcomes by their fate since a coordinator started.
func (w *world) fates(c *coordinator, fate string) (n int) {
	w.t.Helper()
	response, err := http.Get("http://" + c.http + "/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "msghandler_moves_total{") && strings.Contains(name, fmt.Sprintf("fate=%q", fate)) {
			count, err := strconv.ParseFloat(value, 64)
			if err != nil {
				w.t.Fatal(err)
			}
			n += int(count)
		}
	}
	return n
}
