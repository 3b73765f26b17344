package faults

import "fmt"

// Verdict names a defect that the checker found for a message.
type Verdict string

// The verdicts.
const (
	// Lost: committed and accepted, never delivered, and not parked where an operator sees the message.
	Lost Verdict = "LOST"
	// Phantom: delivered though not committed.
	Phantom Verdict = "PHANTOM"
	// Corrupted: an id that was never sent, or other content than its first SendHalfMessage had.
	Corrupted Verdict = "CORRUPTED"
	// Dup: a further copy that no fault explains, or a second copy with attempt 1 that was not delivered before. The
	// order of the copies says nothing: a stopped owner sends its attempt 1 after another's attempt 2.
	Dup Verdict = "DUP"
	// Parked: ABANDONED or DEAD, though every Confirm call was answered.
	Parked Verdict = "PARKED"
	// Stuck: still on its way when the time for draining is over.
	Stuck Verdict = "STUCK"
	// Contradiction: the producer answered both committed and rolled back.
	Contradiction Verdict = "CONTRADICTION"
	// Leftover: a key in Redis besides receipts that expire, or a marker that was not deleted.
	Leftover Verdict = "LEFTOVER"
	// Effect: delivered, and its consumers' database does not hold its effect exactly once.
	Effect Verdict = "EFFECT"
	// OutOfOrder: committed, and a later message of its chain reached the broker before it.
	OutOfOrder Verdict = "OUT_OF_ORDER"
	// Account: the coordinators' counts disagree with the ledger.
	Account Verdict = "ACCOUNT"
)

// verdicts are all of them.
var verdicts = []Verdict{
	Lost, Phantom, Corrupted, Contradiction, Stuck, Parked, Leftover, Dup, Effect, OutOfOrder, Account,
}

// Finding is one defect. Key is empty when the defect concerns no single message.
type Finding struct {
	Verdict Verdict
	Key     string
	Words   string
}

// End is the state of the system at the end of the drain.
type End struct {
	// Underway holds the messages in PENDING or SENDABLE.
	Underway map[string]bool
	// Parked holds the messages in ABANDONED or DEAD.
	Parked map[string]bool
	// Left holds the keys in Redis that do not expire, besides the keys of the messages in Underway and Parked.
	Left []string
	// Markers holds the messages whose markers are still there though their fate is known.
	Markers []string
	// Effects holds how often each message had its effect; nil where they are not kept.
	Effects map[string]int
	// Counted is the number of publishes that the broker acknowledged, by the coordinators' count. Open counts the
	// publishes that the broker refused or left unanswered, so that a copy may be out. Counted is -1 where the
	// coordinators cannot know.
	Counted, Open int
	// CopiesExplained says that a fault of the run can make further copies. Otherwise there must be none.
	CopiesExplained bool
	// ParkedExplained says that a fault of the run can end messages as ABANDONED or DEAD.
	ParkedExplained bool
}

// Check judges a ledger by how the system ended, ordered by id.
func Check(l *Ledger, end End) []Finding {
	unbalanced := l.unbalanced(end)
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []Finding
	for _, key := range l.keys() {
		for _, f := range judgeEntry(l.entries[key], end, key) {
			all = append(all, Finding{f.Verdict, key, f.Words})
		}
	}
	all = append(all, l.overtaken()...)
	for key := range end.Underway {
		if l.entries[key] == nil {
			all = append(all, Finding{Stuck, key, "no producer sent it, and it is on its way"})
		}
	}
	for _, left := range end.Left {
		all = append(all, Finding{Verdict: Leftover, Words: left})
	}
	for _, key := range end.Markers {
		all = append(all, Finding{Leftover, key, "its marker is still there"})
	}
	if unbalanced != "" {
		all = append(all, Finding{Verdict: Account, Words: unbalanced})
	}
	return all
}

// unbalanced says how the coordinators' counts and the ledger disagree, if they do. Each acknowledged publish
// arrives, and each publish arrives once, except redeliveries by the broker.
func (l *Ledger) unbalanced(end End) string {
	_, _, copies := l.Totals()
	again := l.redelivered()
	if end.Counted < 0 || copies >= end.Counted && copies-again <= end.Counted+end.Open {
		return ""
	}
	return fmt.Sprintf("the coordinators count %d publishes acknowledged and %d refused or unanswered; "+
		"consumers got %d "+
		"copies, %d of them redelivered", end.Counted, end.Open, copies, again)
}

// redelivered counts the copies that the broker had delivered before.
func (l *Ledger) redelivered() (copies int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		for _, c := range e.Copies {
			if c.Redelivered {
				copies++
			}
		}
	}
	return copies
}

func judgeEntry(e *Entry, end End, key string) (found []Finding) {
	say := func(v Verdict, format string, args ...any) {
		found = append(found, Finding{Verdict: v, Words: fmt.Sprintf(format, args...)})
	}
	underway, parked := end.Underway[key], end.Parked[key]
	if underway {
		say(Stuck, "still on its way; its business is %v", e.Fate)
	}
	if parked && !end.ParkedExplained {
		say(Parked, "parked, though every Confirm call was answered; its business is %v", e.Fate)
	}
	if e.Accepted && e.Fate == Committed && len(e.Copies) == 0 && !underway && !parked {
		say(Lost, "committed, and never delivered")
	}
	if len(e.Copies) > 0 && e.Sent && e.Fate != Committed {
		say(Phantom, "delivered, and its business is %v", e.Fate)
	}
	if e.Said[Committed] && e.Said[RolledBack] {
		say(Contradiction, "the producer said both committed and rolled back")
	}
	if had := end.Effects[key]; end.Effects != nil && had != min(1, len(e.Copies)) {
		say(Effect, "it came %d times, and had its effect %d times", len(e.Copies), had)
	}
	unflagged := 0
	for i, c := range e.Copies {
		switch {
		case !e.Sent:
			say(Corrupted, "delivered, and no producer sent it")
		case c.Headers != e.Content.Headers:
			say(Corrupted, "delivered with other headers than were sent first")
		case c.Content != e.Content:
			say(Corrupted, "delivered with other content than was sent first")
		}
		if !c.flagged() {
			unflagged++
		}
		switch {
		case i > 0 && !end.CopiesExplained:
			say(Dup, "copy %d, and nothing was broken", i+1)
		case unflagged > 1 && !c.flagged():
			say(Dup, "copy %d is the second with attempt 1 that was not delivered before", i+1)
		}
	}
	return found
}
