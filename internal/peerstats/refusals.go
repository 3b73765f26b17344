package peerstats

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// Nameless stands for producers without a valid name.
	Nameless = "(no valid name)"
	// logEvery is the least time between two log lines of an entry.
	logEvery = time.Minute
	// forgetAfter is the age of the last refusal after which an entry may be replaced. Names of refused producers come
	// from outside, so a caller with many names must not occupy all entries for good.
	forgetAfter = time.Hour
)

// Refusal counts the refusals of a producer for a reason.
type Refusal struct {
	Producer string `json:"producer"`
	Reason   string `json:"reason"`
	// Count is how many calls, and messages of batches, were refused since FirstAt.
	Count   int64     `json:"count"`
	FirstAt time.Time `json:"first_at"`
	LastAt  time.Time `json:"last_at"`
	// Cause is the cause of the latest refusal.
	Cause string `json:"cause"`

	loggedAt time.Time
	logged   int64
}

// refusedAs tells refusals apart.
type refusedAs struct{ producer, reason string }

// Refusals counts refusals in at most MaxNamed entries, plus a shared entry for each reason. The zero value is empty.
// Refusals is safe for concurrent use.
type Refusals struct {
	mu    sync.Mutex
	lines map[refusedAs]*Refusal
}

// Add counts a refusal. due says that a log line is due, and unlogged is the number of refusals of this entry without a
// log line, including the new refusal.
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

// Count counts refusals of which nothing else is told.
func (r *Refusals) Count(producer, reason string, refused int64, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	line := r.line(refusedAs{cmp.Or(producer, Nameless), reason}, now)
	line.Count += refused
	line.LastAt = now
}

// line returns the entry of a producer and a reason, or the shared entry when there is no room for another.
func (r *Refusals) line(as refusedAs, now time.Time) *Refusal {
	if known := r.lines[as]; known != nil {
		return known
	}
	if r.lines == nil {
		r.lines = map[refusedAs]*Refusal{}
	}
	if len(r.lines) >= MaxNamed {
		maps.DeleteFunc(r.lines, func(_ refusedAs, old *Refusal) bool { return now.Sub(old.LastAt) > forgetAfter })
	}
	if len(r.lines) >= MaxNamed {
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

// MergeRefusals adds up refusals of several coordinators, by producer and reason. The latest cause counts.
func MergeRefusals(all []Refusal) (merged []Refusal) {
	for _, r := range all {
		i := slices.IndexFunc(merged, func(m Refusal) bool { return m.Producer == r.Producer && m.Reason == r.Reason })
		if i < 0 {
			merged = append(merged, r)
			continue
		}
		m := &merged[i]
		m.Count += r.Count
		if r.FirstAt.Before(m.FirstAt) {
			m.FirstAt = r.FirstAt
		}
		if r.LastAt.After(m.LastAt) {
			m.LastAt, m.Cause = r.LastAt, r.Cause
		}
	}
	return merged
}

// Lately returns the refusals whose last was within a time before now, the latest first.
func Lately(all []Refusal, within time.Duration, now time.Time) []Refusal {
	all = slices.DeleteFunc(all, func(r Refusal) bool { return now.Sub(r.LastAt) > within })
	slices.SortStableFunc(all, func(a, b Refusal) int { return b.LastAt.Compare(a.LastAt) })
	return all
}
