package halfmsg

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Happening is something that happened to a message, or several in a row that were alike.
type Happening struct {
	// What is the name of an Event or of a final State, or one of the words below. What another version wrote may be none
	// of them.
	What string
	// First and Last are when it happened, by the store's clock, and Times how often.
	First, Last time.Time
	Times       int
	// By is the instance that found it out, or the operator who asked for it; empty where nobody knows.
	By string
	// Cause is why, on one line of at most MaxHappeningCause bytes.
	Cause string
}

// What can be told of a message beyond events and final states.
const (
	// TakenOver: the lease of one owner ended, and another has claimed the message.
	TakenOver = "taken_over"
	// Failed: the last error, where no happening tells of it: a version that kept no timeline has written it.
	Failed = "failed"
)

// The bounds of what a store keeps for each message.
const (
	MaxHappenings     = 10
	MaxHappeningCause = 200
)

// Told says whether a store keeps the event on the timeline of its message. It does for all that is not the ordinary way,
// which costs nothing more for that; what is ordinary follows from the record. A message that is handed back is worth
// telling only with a cause, and a Submit, trusted or not, only when it wakes an ABANDONED one.
func (e Event) Told() bool {
	switch e {
	case EventSubmit, EventSubmitTrusted, EventUnknown, EventUnreachable, EventGivenUp, EventRefused, EventUnsure,
		EventExhausted, EventMarkerKept, EventReleased, EventRetry:
		return true
	}
	return false
}

// Timeline is what a store keeps of what happened to a message, oldest first.
type Timeline []Happening

// Add puts one more happening on the timeline. One that is like the newest becomes one with it. When there are too many,
// the oldest that a later one of its kind follows becomes one with that; so a long outage, however much its causes vary,
// pushes nothing else out.
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

// before makes one of two happenings: of the later it takes who and why.
func (h Happening) before(later Happening) Happening {
	later.First, later.Times = h.First, h.Times+later.Times
	return later
}

// brief brings a cause onto one line and cuts it to what a timeline keeps.
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

// Story is all that is known of what happened to a message, oldest first: what the store keeps, and what follows from
// the record itself: when it was stored, when it was committed, how it ended.
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
	if r.LastError != "" && !slices.ContainsFunc(r.Timeline, func(h Happening) bool { return !h.Last.Before(r.ErrorAt) }) {
		failed := once(Failed, r.ErrorAt)
		failed.Cause = brief(r.LastError)
		story = append(story, failed)
	}
	return slices.Insert(story, 0, once(EventSend.String(), r.CreatedAt))
}

func once(what string, at time.Time) Happening {
	return Happening{What: what, First: at, Last: at, Times: 1}
}

// follows says whether it began after the verdict was stored. Of one that began in the same millisecond its kind tells.
func (h Happening) follows(verdict time.Time) bool {
	switch h.What {
	case EventUnknown.String(), EventUnreachable.String(), EventGivenUp.String(), EventSubmit.String(),
		EventSubmitTrusted.String():
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
	EventCommitted.String():     "committed",
	EventRefused.String():       "published; the broker refused it",
	EventUnsure.String():        "published; the broker's answer was lost, a copy may be out",
	EventExhausted.String():     "published; the broker refused it for the last time",
	EventMarkerKept.String():    "its marker could not be deleted",
	EventReleased.String():      "handed back",
	EventRetry.String():         "retried by an operator",
	Done.String():               "acknowledged by the broker, and done",
	RolledBack.String():         "rolled back",
	TakenOver:                   "taken over from an owner whose lease ended",
	Failed:                      "failed",
}

// Meaning says in words what happened, of a Happening's What.
func Meaning(what string) string {
	if words, known := meanings[what]; known {
		return words
	}
	return what
}
