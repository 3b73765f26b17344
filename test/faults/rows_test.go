package faults

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

// row is one line of docs/evidence/faults.md.
type row struct {
	name string
	// short rows run in the ordinary tests.
	short bool
	// load is how long the load lasts at least.
	load time.Duration
	// times is how many times the usual load the row has; 0 is once.
	times int
	// copies says that the fault can make further copies.
	copies bool
	// shows says that a user of the SDK may see errors of the fault.
	shows bool
	// leavesMarkers says that markers may stay: the deleting process ended, or could not reach them.
	leavesMarkers bool
	// leaves says that markers may stay after the coordinators have given up and counted the deletion: producers may be
	// away for all tries.
	leaves bool
	// unanswered says that each publish without an answer in time explains a flagged copy, on a busy machine.
	unanswered bool
	// parks says that messages may end as ABANDONED or DEAD.
	parks bool
	// alone says that the fault brings its own messages: there is no other load.
	alone bool
	// lasting says that the load goes on for as long as the fault does.
	lasting bool
	// world holds what the row needs beyond the usual.
	world options
	// users are producers besides the usual ones of the load; nil adds none.
	users func(w *world) []user
	// fault breaks the world and repairs the world again, once or until the context ends. The world is whole when fault
	// returns.
	fault func(ctx context.Context, w *world, random *rand.Rand)
	// heal is the operators' repair of damage that stays otherwise, after the load. Nil does nothing.
	heal func(t *testing.T, w *world, l *load)
	// judge adds to the demands on every row; nil adds nothing.
	judge func(t *testing.T, w *world, l *load, end End)
}

// rows are the lines of docs/evidence/faults.md. Each group stands with its faults in a file of its own.
var rows = slices.Concat(calmRows, coordinatorRows, redisRows, clusterRows, fullRows, forgetRows, frozenRows,
	brokerRows, refusalRows, alarmRows,
	halfOpenRows, natsRows, kafkaRows, consumerRows, producerRows, smallRows, scaleRows, crowdRows, mixRows, pointRows,
	wireRows, sqlOutboxRows, trustedRows, replicaRows, upgradeRows, attendRows, moveRows)

var calmRows = []row{
	{name: "F00", short: true, fault: nothing},
}

// nothing breaks. Where the row has users of its own, they are the fault.
func nothing(ctx context.Context, _ *world, _ *rand.Rand) { <-ctx.Done() }

// Under load something breaks and is repaired. Then every committed message is delivered, nothing else is, every
// further copy is flagged, and nothing stays behind.
func TestRows(t *testing.T) {
	for _, r := range rows {
		if r.short || *every {
			t.Run(r.name, r.run)
		}
	}
}

func (r row) run(t *testing.T) {
	w, l, end := r.play(t, patience)
	r.verdict(t, w, l, end)
	if r.judge != nil {
		r.judge(t, w, l, end)
	}
}

// play breaks and repairs a world under load, and returns its state after so much time to drain.
func (r row) play(t *testing.T, drain time.Duration) (*world, *load, End) {
	t.Helper()
	r.world.bare = r.world.bare || r.alone
	w := newWorld(t, r.world)
	l := newLoad(w)
	w.load = l
	if r.users != nil {
		l.users = append(l.users, r.users(w)...)
	}
	ctx, cancel := context.WithTimeout(t.Context(), r.length())
	defer cancel()
	loading, unload := context.WithCancel(t.Context())
	defer unload()
	if !r.lasting {
		defer context.AfterFunc(ctx, unload)()
	}
	loaded := make(chan struct{})
	go func() {
		defer close(loaded)
		if !r.alone {
			l.run(t, loading, *rate*max(1, r.times), *seed)
		}
	}()
	r.fault(ctx, w, rand.New(rand.NewPCG(*seed, 1)))
	if r.lasting {
		<-ctx.Done()
		unload()
	}
	w.ledger.Fault("everything is repaired")
	select {
	case <-loaded:
	case <-time.After(patience):
		t.Fatalf("the producers' calls have not ended\n%s", w.tails())
	}
	l.tell(t)
	if r.heal != nil {
		r.heal(t, w, l)
	}
	repaired := time.Now()
	end := w.drain(drain)
	l.tell(t)
	if w.effects != nil {
		end.Effects = w.effects.had(t, w.ledger)
	}
	end.CopiesExplained, end.ParkedExplained = r.copies, r.parks
	if further := w.ledger.Further(); r.unanswered && further <= w.counted(unansweredPublishes) {
		end.CopiesExplained = true
	}
	if !r.leavesMarkers && len(end.Underway) == 0 {
		end.Markers = l.remainingMarkers(t, w, end.Parked, deletion)
	}
	if left := w.counted(`msghandler_marker_deletions_total{result="left"}`); r.leaves && len(end.Markers) > 0 &&
		len(end.Markers) <= left {
		t.Logf("%d markers stay, and the coordinators report %d as left to their producers", len(end.Markers), left)
		end.Markers = nil
	}
	if w.countsAll() {
		w.account(&end, min(drain, countedWithin))
	}
	ids, committed, copies := w.ledger.Totals()
	flagged, faults := w.ledger.Flagged()
	t.Logf("seed %d: %d ids, %d committed, %d copies (%d flagged), %d notes of faults, %d parked, drained in %v", *seed,
		ids, committed, copies, flagged, faults, len(end.Parked), time.Since(repaired).Round(100*time.Millisecond))
	return w, l, end
}

// length bounds how long a row may break things.
func (r row) length() time.Duration {
	if r.alone {
		return patience
	}
	return max(*length, r.load)
}

// verdict holds the demands on every row.
func (r row) verdict(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	if _, committed, _ := w.ledger.Totals(); committed == 0 {
		t.Error("nothing committed: the row proves nothing")
	}
	found := Check(w.ledger, end)
	t.Log(summary(found, w.ledger))
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

// summary is how many there are of each verdict, and how many copies came beyond the first ones.
func summary(found []Finding, l *Ledger) string {
	counts := map[Verdict]int{}
	for _, f := range found {
		counts[f.Verdict]++
	}
	var out strings.Builder
	for _, v := range verdicts {
		fmt.Fprintf(&out, "%s %d, ", v, counts[v])
	}
	fmt.Fprintf(&out, "further copies that say so: %d", l.Further()-counts[Dup])
	return out.String()
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
