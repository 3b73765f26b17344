// Package faults breaks things under load and judges the result: a ledger outside the system holds the acts of
// producers and the deliveries to consumers, and a checker names lost, invented, doubled and leftover messages.
package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Fate is the outcome of a business by the producer's own data. Only Fate is the truth about a commit.
type Fate int

// The fates of a business. The transaction of an Undecided business never came to an end.
const (
	Undecided Fate = iota
	Committed
	RolledBack
)

// Entry is the record of one message, PRODUCER/ID.
type Entry struct {
	// Content is the content of the first SendHalfMessage; Sent says whether there was a SendHalfMessage.
	Content Content
	Sent    bool
	// Chain names the producer and the ordering key; empty for no order. SentAt is when the first SendHalfMessage began.
	Chain  string
	SentAt time.Time
	// reached is the place of the first copy among those that a broker has taken; 0 for none, or where nothing counts.
	reached int
	// Accepted says that SendHalfMessage was answered with OK, first at AcceptedAt.
	Accepted   bool
	AcceptedAt time.Time
	Fate       Fate
	// Said holds the definite verdicts that the producer gave to Confirm calls.
	Said [3]bool
	// SendReturned says that its Send returned nil, and so left a marker.
	SendReturned bool
	// Copies are in the order in which consumers got them.
	Copies []Copy
	// came is when the first of them did.
	came time.Time
	// history lists the events; folded says that there were more, up to the end of the message.
	history []event
	folded  bool
}

type event struct {
	at         time.Time
	who, words string
}

// Ledger is the history of a run, as seen outside the system. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	entries map[string]*Entry
	faults  []event
	// reached counts the copies that a broker has taken.
	reached int
}

// NewLedger is an empty ledger.
func NewLedger() *Ledger { return &Ledger{entries: map[string]*Entry{}} }

func (l *Ledger) change(key, who, words string, how func(*Entry)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	if e == nil {
		e = &Entry{}
		l.entries[key] = e
	}
	e.history = append(e.history, event{time.Now(), who, words})
	how(e)
}

// Sending is noted before a SendHalfMessage. The first content under an id counts.
func (l *Ledger) Sending(key string, content Content) {
	l.change(key, "producer", fmt.Sprintf("sends the half message, digest %x, of headers %x", content.Digest[:4],
		content.Headers[:4]), func(e *Entry) {
		if !e.Sent {
			e.Sent, e.Content, e.SentAt = true, content, time.Now()
		}
	})
}

// Had is noted for a message that was sent, accepted and committed before the run began.
func (l *Ledger) Had(key string, content Content) {
	l.change(key, "producer", "had committed before all began", func(e *Entry) {
		e.Sent, e.Content, e.Accepted, e.Fate = true, content, true, Committed
	})
}

// Replayed is noted for a message that an operator has stored again, with the content of another one, whose id may be
// its own.
func (l *Ledger) Replayed(key, of string) {
	l.mu.Lock()
	content, at := Content{}, time.Now()
	if e := l.entries[of]; e != nil {
		content = e.Content
	}
	l.mu.Unlock()
	l.change(key, "operator", "replays it", func(e *Entry) {
		if !e.Sent {
			e.Sent, e.Content, e.Accepted, e.AcceptedAt, e.Fate = true, content, true, at, Committed
		}
	})
}

// Accepted is noted once SendHalfMessage has been answered with OK.
func (l *Ledger) Accepted(key string) {
	l.change(key, "producer", "the half message is accepted", func(e *Entry) {
		if !e.Accepted {
			e.Accepted, e.AcceptedAt = true, time.Now()
		}
	})
}

// Decide ends a business's transaction, unless the transaction has ended before, and returns the end that counts.
// Decide is the primary key of the producer's database: a commit after a tombstone fails, and so does a tombstone
// after a commit.
func (l *Ledger) Decide(key string, fate Fate) (ended Fate) {
	l.change(key, "producer", "the transaction is to end as "+fate.String(), func(e *Entry) {
		if e.Fate == Undecided {
			e.Fate = fate
		}
		ended = e.Fate
	})
	return ended
}

// Fate is how a business's transaction ended, so far.
func (l *Ledger) Fate(key string) Fate {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		return e.Fate
	}
	return Undecided
}

// Said is noted when the producer answers the coordinator with a definite verdict.
func (l *Ledger) Said(key string, fate Fate) {
	l.change(key, "producer", "answers "+fate.String(), func(e *Entry) {
		e.Said[fate] = true
	})
}

// SendReturned is noted when a Send has returned nil.
func (l *Ledger) SendReturned(key string) {
	l.change(key, "producer", "Send says that all went well", func(e *Entry) { e.SendReturned = true })
}

// Noted adds words to an id's history.
func (l *Ledger) Noted(key, who, words string) { l.change(key, who, words, func(*Entry) {}) }

// Got is noted for every copy that a consumer gets.
func (l *Ledger) Got(key string, c Copy) {
	words := fmt.Sprintf("gets attempt %d, redelivered %t, digest %x, of headers %x", c.Attempt, c.Redelivered,
		c.Digest[:4], c.Headers[:4])
	l.change(key, "consumer", words, func(e *Entry) {
		if len(e.Copies) == 0 {
			e.came = time.Now()
		}
		if c.Content == e.Content {
			c.Content = e.Content // its strings are there already
		}
		e.Copies = append(e.Copies, c)
	})
}

// Fault is noted when something is broken or repaired. The note is part of the history of every id.
func (l *Ledger) Fault(words string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.faults = append(l.faults, event{time.Now(), "nemesis", words})
}

// Totals counts the ids, the committed ids whose half message was accepted, and all delivered copies.
func (l *Ledger) Totals() (ids, committed, copies int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if e.Accepted && e.Fate == Committed {
			committed++
		}
		copies += len(e.Copies)
	}
	return len(l.entries), committed, copies
}

// Committed holds the committed ids whose half message was accepted.
func (l *Ledger) Committed() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string]bool{}
	for key, e := range l.entries {
		if e.Accepted && e.Fate == Committed {
			all[key] = true
		}
	}
	return all
}

// Undelivered are the committed and accepted ids without a copy so far.
func (l *Ledger) Undelivered() map[string]Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := map[string]Entry{}
	for key, e := range l.entries {
		if e.Accepted && e.Fate == Committed && len(e.Copies) == 0 {
			missing[key] = *e
		}
	}
	return missing
}

// UndeliveredOf counts the undelivered ids whose keys begin with prefix.
func (l *Ledger) UndeliveredOf(prefix string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.entries {
		if strings.HasPrefix(key, prefix) && e.Accepted && e.Fate == Committed && len(e.Copies) == 0 {
			n++
		}
	}
	return n
}

// Delivered counts the copies of one message.
func (l *Ledger) Delivered(key string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.entries[key]; e != nil {
		return len(e.Copies)
	}
	return 0
}

// AcceptedIn counts a producer's committed messages whose half message was accepted in that time.
func (l *Ledger) AcceptedIn(producer string, from, to time.Time) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.entries {
		of := strings.HasPrefix(key, producer+"/")
		if of && e.Accepted && e.Fate == Committed && e.AcceptedAt.After(from) && e.AcceptedAt.Before(to) {
			n++
		}
	}
	return n
}

// DeliveredIDs counts the messages of which there was a copy.
func (l *Ledger) DeliveredIDs() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if len(e.Copies) > 0 {
			n++
		}
	}
	return n
}

// Further counts the copies beyond the first of each message.
func (l *Ledger) Further() (copies int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		copies += max(0, len(e.Copies)-1)
	}
	return copies
}

// Flagged counts the copies that announce that another may be out, and the notes of faults. The counts tell whether a
// fault hit anything.
func (l *Ledger) Flagged() (copies, faults int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		for _, c := range e.Copies {
			if c.flagged() {
				copies++
			}
		}
	}
	return copies, len(l.faults)
}

// Copies are the deliveries of a producer's messages, by key.
func (l *Ledger) Copies(producer string) map[string][]Copy {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string][]Copy{}
	for key, e := range l.entries {
		if strings.HasPrefix(key, producer+"/") {
			all[key] = slices.Clone(e.Copies)
		}
	}
	return all
}

// Silence is the longest time in which consumers got nothing new of a producer's, between its first message and its
// last.
func (l *Ledger) Silence(producer string) (longest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var came []time.Time
	for key, e := range l.entries {
		if strings.HasPrefix(key, producer+"/") && len(e.Copies) > 0 {
			came = append(came, e.came)
		}
	}
	slices.SortFunc(came, time.Time.Compare)
	for i := 1; i < len(came); i++ {
		longest = max(longest, came[i].Sub(came[i-1]))
	}
	return longest
}

// FirstCopy is when a consumer first got one of the messages whose keys begin with prefix.
func (l *Ledger) FirstCopy(prefix string) (first time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, e := range l.entries {
		if strings.HasPrefix(key, prefix) && len(e.Copies) > 0 && (first.IsZero() || e.came.Before(first)) {
			first = e.came
		}
	}
	return first
}

// Fold drops the histories of messages that have ended and have been quiet for so long; otherwise a long run would
// not fit into memory. The data for the verdicts stay.
func (l *Ledger) Fold(quiet time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := time.Now().Add(-quiet)
	for _, e := range l.entries {
		last := len(e.history) - 1
		ended := e.Fate == RolledBack || e.Fate == Committed && len(e.Copies) > 0
		if last >= 0 && ended && e.history[last].at.Before(before) {
			e.history, e.folded = nil, true
		}
	}
}

// History lists the events of one id, and of the world meanwhile, in order.
func (l *Ledger) History(key string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	events := slices.Clone(l.faults)
	if e := l.entries[key]; e != nil {
		if e.folded {
			events = append(events, event{e.came, "ledger", "came to its end; what happened before was folded"})
		}
		events = append(events, e.history...)
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for _, e := range events {
		fmt.Fprintf(&out, "%s  %-8s  %s\n", e.at.Format("15:04:05.000000"), e.who, e.words)
	}
	return out.String()
}

// IDs lists the ids of a producer's messages.
func (l *Ledger) IDs(producer string) (ids []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range l.keys() {
		if id, its := strings.CutPrefix(key, producer+"/"); its {
			ids = append(ids, id)
		}
	}
	return ids
}

// HasSaid says whether the producer has given a definite verdict about a message.
func (l *Ledger) HasSaid(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[key]
	return e != nil && (e.Said[Committed] || e.Said[RolledBack])
}

func (l *Ledger) keys() []string { return slices.Sorted(maps.Keys(l.entries)) }

// String names the fate.
func (f Fate) String() string {
	return [...]string{"undecided", "committed", "rolled back"}[f]
}
