package faults

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

var (
	every  = flag.Bool("every", false, "run every row, not the short selection alone")
	length = flag.Duration("load", 5*time.Second, "how long each row's load lasts")
	rate   = flag.Int("rate", 100, "new ids a second")
	seed   = flag.Uint64("seed", 1, "what the run draws from; a row with the same seed draws the same load")
)

// row is one line of docs/faults.md.
type row struct {
	name  string
	short bool
	// copies says that the fault can make further copies; silent that no user of the SDK may see an error of it.
	copies, silent bool
	// fault breaks the world and mends it again, once or until the context ends. It returns with the world mended.
	fault func(ctx context.Context, w *world, random *rand.Rand)
}

var rows = []row{
	{"F00", true, false, true, func(ctx context.Context, _ *world, _ *rand.Rand) { <-ctx.Done() }},
	{"F03", true, true, true, killCoordinators},
	{"F04", false, false, true, rollCoordinators},
	{"F13_1s", true, true, true, func(ctx context.Context, w *world, _ *rand.Rand) { killRedis(ctx, w, time.Second) }},
	{"F13_5s", false, true, true, func(ctx context.Context, w *world, _ *rand.Rand) { killRedis(ctx, w, 5*time.Second) }},
	{"F16", false, true, true, stopOwner},
	{"F18", false, true, true, flushScripts},
	{"F21", false, true, true, cutBroker},
	{"F22", false, true, true, unbind},
}

// Under load something breaks and is mended. Then every committed message is delivered, nothing else is, every further
// copy says that it is one, and nothing stays behind.
func TestRows(t *testing.T) {
	for _, r := range rows {
		if r.short || *every {
			t.Run(r.name, r.run)
		}
	}
}

func (r row) run(t *testing.T) {
	w := newWorld(t)
	l := newLoad(w)
	ctx, cancel := context.WithTimeout(t.Context(), *length)
	defer cancel()
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		l.run(t, ctx, *rate, *seed)
	}()
	r.fault(ctx, w, rand.New(rand.NewPCG(*seed, 1)))
	w.ledger.Fault("all is mended")
	select {
	case <-loaded:
	case <-time.After(patience):
		t.Fatalf("the producers' calls have not ended\n%s", w.tails())
	}
	mended := time.Now()
	end := w.drain(patience)
	end.CopiesExplained = r.copies
	if r.name == "F00" { // a process that ended takes its counts along
		end.Counted = w.published()
	}
	ids, committed, copies := w.ledger.Totals()
	flagged, faults := w.ledger.Flagged()
	t.Logf("seed %d: %d ids, %d committed, %d copies (%d flagged), %d notes of faults, %d set aside, drained in %v", *seed,
		ids, committed, copies, flagged, faults, len(end.SetAside), time.Since(mended).Round(100*time.Millisecond))
	r.judge(t, w, l, end)
}

func (r row) judge(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	if _, committed, _ := w.ledger.Totals(); committed == 0 {
		t.Error("nothing committed: the row proves nothing")
	}
	if len(end.SetAside) > 0 {
		t.Errorf("%d messages are ABANDONED or DEAD, and every question had an answer", len(end.SetAside))
		key := slices.Sorted(maps.Keys(end.SetAside))[0]
		t.Logf("all about %s:\n%s", key, w.ledger.History(key))
	}
	found := Check(w.ledger, end)
	for i, f := range found {
		if i == 10 {
			t.Errorf("and %d more", len(found)-i)
			break
		}
		t.Errorf("%s %s: %s", f.Verdict, f.Key, f.Words)
	}
	if len(found) > 0 {
		t.Logf("all about %s:\n%s\n%s", found[0].Key, w.ledger.History(found[0].Key), w.tails())
	}
	for _, s := range l.services {
		s.mu.Lock()
		if r.silent && len(s.seen) > 0 {
			t.Errorf("%d errors reached the user of the SDK, the first: %s", len(s.seen), s.seen[0])
		}
		s.mu.Unlock()
	}
}

// pause waits, or not so long when the context ends first.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// wait waits all of the time: how long a fault lasts does not depend on the load.
func wait(d time.Duration) { pause(context.Background(), d) }

// killCoordinators kills one after the other at moments that are drawn.
func killCoordinators(ctx context.Context, w *world, random *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Duration(100+random.IntN(900))*time.Millisecond)
		c := w.coordinators[random.IntN(len(w.coordinators))]
		w.ledger.Fault("kill -9 of " + c.grpc)
		_ = w.end(c, syscall.SIGKILL) // it was killed, and says so
		w.start(c)
	}
	for _, c := range w.coordinators {
		w.ready(c)
	}
}

func rollCoordinators(ctx context.Context, w *world, _ *rand.Rand) {
	for _, c := range w.coordinators {
		pause(ctx, time.Second)
		w.ledger.Fault("SIGTERM to " + c.grpc)
		if err := w.end(c, syscall.SIGTERM); err != nil {
			w.t.Errorf("a coordinator that was asked to stop: %v", err)
		}
		w.start(c)
		w.ready(c)
		w.ledger.Fault("ready again: " + c.grpc)
	}
}

func killRedis(ctx context.Context, w *world, away time.Duration) {
	pause(ctx, time.Second)
	w.ledger.Fault("kill -9 of Redis")
	w.redis.Kill()
	wait(away)
	w.redis.Start()
	w.ledger.Fault("Redis is back")
	for _, c := range w.coordinators {
		w.ready(c)
	}
}

// stopOwner stops one for more than its leases, which another takes over, and lets it go on.
func stopOwner(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	c := w.coordinators[0]
	w.ledger.Fault("SIGSTOP to " + c.grpc)
	if err := c.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		w.t.Fatal(err)
	}
	wait(20 * time.Second)
	w.ledger.Fault("SIGCONT to " + c.grpc)
	if err := c.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		w.t.Fatal(err)
	}
	w.ready(c)
}

func flushScripts(ctx context.Context, w *world, _ *rand.Rand) {
	for n := 0; ctx.Err() == nil; n++ {
		w.redis.CLI("SCRIPT", "FLUSH")
		if n%5 == 0 {
			w.redis.CLI("CLIENT", "KILL", "TYPE", "normal")
		}
		pause(ctx, 200*time.Millisecond)
	}
}

func cutBroker(ctx context.Context, w *world, _ *rand.Rand) {
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		w.ledger.Fault("all connections to RabbitMQ are closed")
		w.broker.CloseConnections()
	}
	for _, c := range w.coordinators {
		w.ready(c)
	}
}

// unbind takes the queue's binding away and gives it back.
func unbind(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	conn, err := amqp.Dial(w.broker.URL)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		w.t.Fatal(err)
	}
	w.ledger.Fault("the queue is unbound")
	if err := channel.QueueUnbind(queue, "#", exchange, nil); err != nil {
		w.t.Fatal(err)
	}
	wait(3 * time.Second)
	if err := channel.QueueBind(queue, "#", exchange, false, nil); err != nil {
		w.t.Fatal(err)
	}
	w.ledger.Fault("the queue is bound again")
}
