package peers

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	// returnsWithin is how soon a problem must come back to be the same problem.
	returnsWithin = 30 * time.Second
	// maxUnwritten bounds the ended problems in memory, which wait for the store.
	maxUnwritten = 100
)

// tracker knows since when this coordinator has its problems, and which have ended. The zero value has no problem. A
// tracker is safe for concurrent use.
type tracker struct {
	mu   sync.Mutex
	open map[causeKey]*tracked
	// ended are the ended problems outside of the store, the oldest first.
	ended []Problem
}

// tracked is a problem in the memory of the tracker.
type tracked struct {
	Problem
	// firsts are the first figures of the subjects.
	firsts map[string]int64
	// goneAt is when a look found the problem gone; zero while the problem is there.
	goneAt time.Time
}

// sighting is a problem of another coordinator, and when that coordinator last reported.
type sighting struct {
	Problem
	reportedAt time.Time
}

// look compares the present problems with the earlier ones. reported are the problems of other coordinators: a problem
// began when the first coordinator had it. A report from long before a problem tells of an earlier problem.
func (t *tracker) look(now time.Time, present []Problem, reported []sighting) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open == nil {
		t.open = map[causeKey]*tracked{}
	}
	there := map[causeKey]bool{}
	for _, p := range foldOwn(present) {
		there[p.key()] = true
		t.begin(now, p)
	}
	t.figure(present)
	for key, p := range t.open {
		switch {
		case there[key]:
		case p.goneAt.IsZero():
			p.goneAt = now
		case now.Sub(p.goneAt) >= returnsWithin:
			t.end(p, p.goneAt)
		}
	}
	for _, r := range reported {
		p := t.open[r.key()]
		if p != nil && r.Since.Before(p.Since) && p.Since.Sub(r.reportedAt) < sameWithin {
			p.Since, p.First = r.Since, r.First
			if len(p.firsts) == 1 { // of several, the other coordinator reports the sum
				for subject := range p.firsts {
					p.firsts[subject] = r.First
				}
			}
		}
	}
}

// figure keeps the first figure of each present subject.
func (t *tracker) figure(present []Problem) {
	firsts := map[causeKey]map[string]int64{}
	for _, p := range present {
		if firsts[p.key()] == nil {
			firsts[p.key()] = map[string]int64{}
		}
		first, known := t.open[p.key()].firsts[p.Subject]
		if !known {
			first = p.Count
		}
		firsts[p.key()][p.Subject] = first
	}
	for key, of := range firsts {
		t.open[key].firsts = of
	}
}

// begin remembers a new problem, or goes on with a known problem.
func (t *tracker) begin(now time.Time, p Problem) {
	known := t.open[p.key()]
	if known == nil {
		if p.Since.IsZero() {
			p.Since = now
		}
		p.First = p.Count
		t.open[p.key()] = &tracked{Problem: p}
		return
	}
	p.Since, p.First = known.Since, known.First
	known.Problem, known.goneAt = p, time.Time{}
}

// end moves a problem to the ended ones. A repeated event ended when the event happened last.
func (t *tracker) end(p *tracked, at time.Time) {
	delete(t.open, p.key())
	if p.lasts() {
		p.Until = at
	}
	t.keep(p.Problem)
}

// keep keeps ended problems for the store.
func (t *tracker) keep(all ...Problem) {
	t.ended = append(t.ended, all...)
	t.ended = slices.Clone(t.ended[max(0, len(t.ended)-maxUnwritten):])
}

// note lets the record have ended problems, or events.
func (t *tracker) note(all ...Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keep(all...)
}

// since is when a present problem began; zero for an absent one.
func (t *tracker) since(key causeKey) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.open[key]; p != nil {
		return p.Since
	}
	return time.Time{}
}

// waiting are the ended problems outside of the store, and the gone ones, which may come back soon.
func (t *tracker) waiting() []Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Clone(t.ended)
	for _, p := range t.open {
		if !p.goneAt.IsZero() {
			gone := p.Problem
			gone.Until = p.goneAt
			all = append(all, gone)
		}
	}
	return all
}

// takeEnded hands over the ended problems for the store. After a failure note takes them back.
func (t *tracker) takeEnded() []Problem {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.ended
	t.ended = nil
	return all
}

// stop ends all problems: their coordinator stops.
func (t *tracker) stop(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.open {
		at := now
		if !p.goneAt.IsZero() {
			at = p.goneAt
		}
		t.end(p, at)
	}
}

// present lists the present problems, the worst first.
func (t *tracker) present() (all []Problem) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, p := range t.open {
		if p.goneAt.IsZero() {
			all = append(all, p.Problem)
		}
	}
	slices.SortFunc(all, func(a, b Problem) int {
		if c := worstFirst(a, b); c != 0 {
			return c
		}
		return a.Since.Compare(b.Since)
	})
	return all
}

// date adds since when the problem lasts, and the first figure of its subject.
func (t *tracker) date(p *Problem, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.First = p.Count
	if known := t.open[p.key()]; known != nil {
		p.Since = known.Since
		if first, there := known.firsts[p.Subject]; there {
			p.First = first
		}
		return
	}
	if p.Since.IsZero() {
		p.Since = now
	}
}

// foldOwn joins the problems of a coordinator with the same cause.
func foldOwn(all []Problem) (folded []Problem) {
	counts := map[causeKey]int{}
	for _, p := range all {
		at := slices.IndexFunc(folded, func(f Problem) bool { return f.key() == p.key() })
		if at < 0 {
			counts[p.key()] = 1
			folded = append(folded, p)
			continue
		}
		counts[p.key()]++
		first := &folded[at]
		first.joinSubject(p)
		first.Severity = max(first.Severity, p.Severity)
		first.Count += p.Count
		if !first.Since.IsZero() && p.Since.Before(first.Since) {
			first.Since = p.Since
		}
		if p.Until.After(first.Until) {
			first.Until = p.Until
		}
	}
	for i := range folded {
		if n := counts[folded[i].key()]; n > 1 {
			folded[i].What += fmt.Sprintf(" (and %d more)", n-1)
		}
	}
	return folded
}
