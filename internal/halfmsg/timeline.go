package halfmsg

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Happening is an entry of a timeline: an event of a message, or several like events in a row.
type Happening struct {
	// What is the name of an Event or of a final State, or TakenOver.
	What string
	// First and Last are the times of the event, by the store's clock, and Times how often the event happened.
	First, Last time.Time
	Times       int
	// By is the instance that stored the event, or the operator who asked for the event; empty if unknown.
	By string
	// Cause is the reason, on a line of at most MaxHappeningCause bytes.
	Cause string
}

// TakenOver is a word beyond events and final states: the lease of an owner ended, and another owner has claimed the
// message.
const TakenOver = "taken_over"

// The bounds of a timeline.
const (
	MaxHappenings     = 10
	MaxHappeningCause = 200
)

// OnTimeline says whether a store keeps the event on the timeline of its message. Ordinary events are not kept, since
// they follow from the record and would cost time. A message that is handed back is kept only with a cause, and a
// Submit, trusted or not, only when the message was ABANDONED.
func (e Event) OnTimeline() bool {
	switch e {
	case EventSubmit, EventSubmitTrusted, EventUnknown, EventUnreachable, EventGivenUp, EventTimedOut, EventRefused,
		EventUnsure, EventExhausted, EventMarkerKept, EventReleased, EventRetry, EventReplay:
		return true
	}
	return false
}

// Timeline has the events of a message that a store keeps, oldest first.
type Timeline []Happening

// Add puts a happening on the timeline. A happening like the newest is merged into the newest. When the timeline is
// full, the oldest happening with a later happening of its kind is merged into the later; so a long outage pushes
// nothing else out, however much its causes vary.
func (t Timeline) Add(h Happening) Timeline {
	h.Cause = brief(h.Cause)
	if last := len(t) - 1; last >= 0 && t[last].What == h.What && t[last].Cause == h.Cause {
		t[last] = t[last].before(h)
		return t
	}
	t = append(t, h)
	if len(t) <= MaxHappenings {
		return t
	}
	for old := range t {
		for later := old + 1; later < len(t); later++ {
			if t[later].What == t[old].What {
				t[later] = t[old].before(t[later])
				return slices.Delete(t, old, old+1)
			}
		}
	}
	return t[1:]
}

// before merges two happenings. By and Cause are the later ones.
func (h Happening) before(later Happening) Happening {
	later.First, later.Times = h.First, h.Times+later.Times
	return later
}

// brief brings a cause onto a single line and cuts the cause to MaxHappeningCause.
func brief(cause string) string {
	blank := false
	cause = strings.Map(func(r rune) rune {
		if r > ' ' && r != 0x7f {
			blank = false
			return r
		}
		if blank {
			return -1
		}
		blank = true
		return ' '
	}, cause)
	cut := min(len(cause), MaxHappeningCause)
	for cut < len(cause) && cut > 0 && !utf8.RuneStart(cause[cut]) {
		cut--
	}
	return cause[:cut]
}

// Story has all known events of a message, oldest first: the timeline, and the events that follow from the record
// itself, which are the times of storing, of the verdict and of the end.
func (r *Record) Story() []Happening {
	if r.State.Final() {
		return []Happening{once(r.State.String(), r.UpdatedAt)}
	}
	story := slices.Clone(r.Timeline)
	if !r.SendableAt.IsZero() {
		at := slices.IndexFunc(story, func(h Happening) bool { return h.follows(r.SendableAt) })
		if at < 0 {
			at = len(story)
		}
		story = slices.Insert(story, at, once(EventCommitted.String(), r.SendableAt))
	}
	return slices.Insert(story, 0, once(EventSend.String(), r.CreatedAt))
}

func once(what string, at time.Time) Happening {
	return Happening{What: what, First: at, Last: at, Times: 1}
}

// follows says whether it began after the verdict was stored. Of one that began in the same millisecond its kind tells.
func (h Happening) follows(verdict time.Time) bool {
	switch h.What {
	case EventUnknown.String(), EventUnreachable.String(), EventGivenUp.String(), EventTimedOut.String(),
		EventSubmit.String(), EventSubmitTrusted.String():
		return h.First.After(verdict)
	}
	return !h.First.Before(verdict)
}

var meanings = map[string]string{
	EventSend.String():          "stored",
	EventSubmit.String():        "submitted, after it was abandoned",
	EventSubmitTrusted.String(): "submitted, after it was abandoned; this Submit is the verdict",
	EventUnknown.String():       "asked; the producer answered UNKNOWN",
	EventUnreachable.String():   "not answered: the producer is out of reach",
	EventGivenUp.String():       "asked for the last time; the producer answered UNKNOWN",
	EventTimedOut.String():      "given up: no answer within confirm.give_up_after",
	EventCommitted.String():     "committed",
	EventRefused.String():       "published; the broker refused it",
	EventUnsure.String():        "published; the broker's answer was lost, a copy may be out",
	EventExhausted.String():     "published; the broker refused it for the last time",
	EventMarkerKept.String():    "its marker could not be deleted",
	EventReleased.String():      "handed back",
	EventRetry.String():         "retried by an operator",
	EventReplay.String():        "replayed by an operator, from the archive",
	Done.String():               "acknowledged by the broker, and done",
	RolledBack.String():         "rolled back",
	TakenOver:                   "taken over from an owner whose lease ended",
}

// Meaning says in words what happened, of a Happening's What.
func Meaning(what string) string {
	if words, known := meanings[what]; known {
		return words
	}
	return what
}
