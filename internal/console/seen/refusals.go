package seen

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// Nameless is what stands for producers whose names are none: nobody can be told by them.
	Nameless = "(no valid name)"
	// logEvery is how often one line of refusals is worth a line in the log.
	logEvery = time.Minute
	// forgetAfter is how long ago a line was last refused that makes room for another one. Names of refused producers
	// come from outside: whoever sends many must not keep later ones from having a line for good.
	forgetAfter = time.Hour
)

// Refusal is what was refused to one producer for one reason.
type Refusal struct {
	Producer, Reason string
	// Count is how many calls, and messages of batches, were refused since FirstAt.
	Count           int64
	FirstAt, LastAt time.Time
	// Cause is why the latest was refused.
	Cause string

	loggedAt time.Time
	logged   int64
}

// refusedAs tells refusals apart.
type refusedAs struct{ producer, reason string }

// Refusals remembers what was refused to producers: Most lines at most, and one more for each reason, which all others
// share. Its zero value is empty. It is safe for concurrent use.
type Refusals struct {
	mu    sync.Mutex
	lines map[refusedAs]*Refusal
}

// Add notes one refusal. due says that the log should tell of it, and unlogged how many refusals of this line it has
// not told of, this one included.
func (r *Refusals) Add(producer, reason, cause string, now time.Time) (unlogged int64, due bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.line(refusedAs{cmp.Or(producer, Nameless), reason}, now)
	line.Count++
	line.LastAt, line.Cause = now, cause
	if !line.loggedAt.IsZero() && now.Sub(line.loggedAt) < logEvery {
		return 0, false
	}
	unlogged, line.logged, line.loggedAt = line.Count-line.logged, line.Count, now
	return unlogged, true
}

// line gives the line of a producer and a reason, or the one that is shared when there is no room for another.
func (r *Refusals) line(as refusedAs, now time.Time) *Refusal {
	if known := r.lines[as]; known != nil {
		return known
	}
	if r.lines == nil {
		r.lines = map[refusedAs]*Refusal{}
	}
	if len(r.lines) >= Most {
		maps.DeleteFunc(r.lines, func(_ refusedAs, old *Refusal) bool { return now.Sub(old.LastAt) > forgetAfter })
	}
	if len(r.lines) >= Most {
		as.producer = Other
	}
	if r.lines[as] == nil {
		r.lines[as] = &Refusal{Producer: as.producer, Reason: as.reason, FirstAt: now}
	}
	return r.lines[as]
}

// All lists the refusals by producer and reason.
func (r *Refusals) All() []Refusal {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Refusal, 0, len(r.lines))
	for line := range maps.Values(r.lines) {
		all = append(all, *line)
	}
	slices.SortFunc(all, func(a, b Refusal) int {
		return cmp.Or(cmp.Compare(a.Producer, b.Producer), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
