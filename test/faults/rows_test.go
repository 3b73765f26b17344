package faults

import (
	"context"
	"flag"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var (
	every  = flag.Bool("every", false, "run every row, not the short selection alone")
	length = flag.Duration("load", 5*time.Second, "how long each row's load lasts")
	rate   = flag.Int("rate", 100, "new ids a second")
	seed   = flag.Uint64("seed", 1, "what the run draws from; a row with the same seed draws the same load")
)

// deletion is how long deleting a marker may take: five tries with pauses between them.
const deletion = 40 * time.Second

// row is one line of docs/faults.md.
type row struct {
	name string
	// short rows run in the ordinary tests.
	short bool
	// copies says that the fault can make further copies.
	copies bool
	// shows says that a user of the SDK may see errors of the fault.
	shows bool
	// litters says that markers may stay: what was to delete them ended, or could not reach them.
	litters bool
	// setAside says that messages may end as ABANDONED or DEAD.
	setAside bool
	// world is what the row needs that others do not.
	world options
	// users are producers that the load has besides the usual ones; nil adds none.
	users func(w *world) []user
	// fault breaks the world and mends it again, once or until the context ends. It returns with the world mended.
	fault func(ctx context.Context, w *world, random *rand.Rand)
	// judge adds to what is demanded of every row; nil adds nothing.
	judge func(t *testing.T, w *world, l *load, end End)
}

// rows are the lines of docs/faults.md. Each group stands with its faults in a file of its own.
var rows = slices.Concat(
	calmRows, coordinatorRows, redisRows, brokerRows, producerRows, pointRows, wireRows,
)

var calmRows = []row{
	{name: "F00", short: true, fault: nothing},
}

// nothing breaks. Where the row has users of its own, they are the fault.
func nothing(ctx context.Context, _ *world, _ *rand.Rand) { <-ctx.Done() }

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
	w := newWorld(t, r.world)
	l := newLoad(w)
	if r.users != nil {
		l.users = append(l.users, r.users(w)...)
	}
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
	if !r.litters && len(end.Underway)+len(end.SetAside) == 0 {
		end.Markers = l.litter(t, deletion)
	}
	if r.name == "F00" { // a process that ended takes its counts along
		end.Counted = w.published()
	}
	ids, committed, copies := w.ledger.Totals()
	flagged, faults := w.ledger.Flagged()
	t.Logf("seed %d: %d ids, %d committed, %d copies (%d flagged), %d notes of faults, %d set aside, drained in %v", *seed,
		ids, committed, copies, flagged, faults, len(end.SetAside), time.Since(mended).Round(100*time.Millisecond))
	r.verdict(t, w, l, end)
	if r.judge != nil {
		r.judge(t, w, l, end)
	}
}

// verdict is what is demanded of every row.
func (r row) verdict(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	if _, committed, _ := w.ledger.Totals(); committed == 0 {
		t.Error("nothing committed: the row proves nothing")
	}
	if len(end.SetAside) > 0 && !r.setAside {
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
	for _, u := range l.users {
		if seen := u.surprises(); !r.shows && len(seen) > 0 {
			t.Errorf("%d surprises of a producer, the first: %s", len(seen), seen[0])
		}
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
