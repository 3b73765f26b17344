package halfmsg

import "fmt"

// State is where a message stands. The values are those of msghandler.v1.State.
type State uint8

// The states of a message. None is the state of a message that was never stored, or that an operator has discarded.
const (
	None State = iota
	Pending
	Sendable
	Done
	RolledBack
	Abandoned
	Dead
	// Acknowledged is where a message waits that the broker has, until its producer has deleted its business marker. It
	// is only used where markers are deleted after the acknowledgement.
	Acknowledged
)

var stateNames = [...]string{
	"none", "pending", "sendable", "done", "rolled_back", "abandoned", "dead", "acknowledged",
}

// States lists every state, None included.
func States() []State {
	return []State{None, Pending, Sendable, Done, RolledBack, Abandoned, Dead, Acknowledged}
}

// Unfinished lists the states in which a store holds a message without any expiry: whole, except an ACKNOWLEDGED one,
// whose content is the broker's by then. The order is that of precedence: a record that a half-finished write has left
// in two of them stands in the one that comes first, which is never the one that could lose a committed message.
func Unfinished() []State {
	return []State{Sendable, Dead, Pending, Abandoned, Acknowledged}
}

// String gives the name that logs, Redis keys and the command line use.
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return fmt.Sprintf("state(%d)", uint8(s))
}

// ParseState reads what String writes.
func ParseState(name string) (State, error) {
	for i, n := range stateNames {
		if n == name {
			return State(i), nil
		}
	}
	return None, fmt.Errorf("unknown state %q", name)
}

// Final says whether the message is finished: only a receipt is kept, and only for a time.
func (s State) Final() bool { return s == Done || s == RolledBack }

// HasLoop says whether a due message in the state goes on by itself.
func (s State) HasLoop() bool { return s == Pending || s == Sendable || s == Acknowledged }

// Event is what happens to a message.
type Event uint8

// The events. From EventCommitted to EventTimedOut they are outcomes for a PENDING message, from EventAcked to
// EventExhausted for a SENDABLE message, from EventMarkerDeleted to EventMarkerLeft for an ACKNOWLEDGED message.
// Outcomes need the message's lease, other events do not.
const (
	// EventSend is SendHalfMessage.
	EventSend Event = iota
	// EventSubmit is Submit: the message is due now.
	EventSubmit
	// EventSubmitTrusted is the Submit of a producer whose Submit is the verdict COMMITTED, for every lease holder.
	EventSubmitTrusted
	// EventRollback is the producer's Rollback.
	EventRollback
	// EventCommitted is the verdict COMMITTED.
	EventCommitted
	// EventRolledBack is the verdict ROLLED_BACK.
	EventRolledBack
	// EventUnknown is the answer UNKNOWN; it uses up a confirm attempt.
	EventUnknown
	// EventUnreachable is no answer at all; it uses up nothing.
	EventUnreachable
	// EventGivenUp is the answer UNKNOWN to the final question.
	EventGivenUp
	// EventTimedOut is no answer at all, after the time limit for verdicts has passed; it uses up nothing.
	EventTimedOut
	// EventAcked is the broker's acknowledgement of a message that it routed.
	EventAcked
	// EventAckedMarked is the same where the message's marker is deleted only now.
	EventAckedMarked
	// EventRefused is a nack, a return or a refusal; it uses up a publish attempt.
	EventRefused
	// EventUnsure is a publish with an unknown outcome: a copy may be out; it uses up no attempt.
	EventUnsure
	// EventExhausted is the last refusal.
	EventExhausted
	// EventMarkerDeleted is the producer's answer that its marker is gone.
	EventMarkerDeleted
	// EventMarkerKept is a DeleteBusiness that failed; it uses up a deletion attempt.
	EventMarkerKept
	// EventMarkerLeft is the last one that failed: the marker is left to the producer's own clean-up.
	EventMarkerLeft
	// EventReleased hands a message back that nothing was done with.
	EventReleased
	// EventRetry is an operator's retry: due now, attempts back at zero.
	EventRetry
	// EventDiscard is an operator's discard.
	EventDiscard
	// EventReplay is an operator's replay of a finished message: a copy from the archive takes the place of the receipt.
	EventReplay
)

var eventNames = [...]string{
	"send", "submit", "submit_trusted", "rollback", "committed", "rolled_back", "unknown", "unreachable", "given_up",
	"timed_out", "acked", "acked_marked", "refused", "unsure", "exhausted", "marker_deleted", "marker_kept", "marker_left",
	"released", "retry", "discard", "replay",
}

// Events lists every event.
func Events() []Event {
	events := make([]Event, len(eventNames))
	for i := range events {
		events[i] = Event(i)
	}
	return events
}

// String gives the event's name for logs and diagrams.
func (e Event) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return fmt.Sprintf("event(%d)", uint8(e))
}

// NeedsLease says whether only the holder of the message's lease may bring the event about.
func (e Event) NeedsLease() bool { return e >= EventCommitted && e <= EventReleased }

// Move is one line of the table of legal moves.
type Move struct {
	From  State
	Event Event
	To    State
}

// moves is the state machine. Every other move is refused and leaves the record as it was.
var moves = []Move{
	{None, EventSend, Pending},
	{None, EventReplay, Sendable},

	{Pending, EventSubmit, Pending},
	{Pending, EventSubmitTrusted, Sendable},
	{Pending, EventRollback, RolledBack},
	{Pending, EventCommitted, Sendable},
	{Pending, EventRolledBack, RolledBack},
	{Pending, EventUnknown, Pending},
	{Pending, EventUnreachable, Pending},
	{Pending, EventGivenUp, Abandoned},
	{Pending, EventTimedOut, Abandoned},
	{Pending, EventReleased, Pending},
	{Pending, EventRetry, Pending},
	{Pending, EventDiscard, None},

	{Abandoned, EventSubmit, Pending},
	{Abandoned, EventSubmitTrusted, Sendable},
	{Abandoned, EventRetry, Pending},
	{Abandoned, EventDiscard, None},

	{Sendable, EventAcked, Done},
	{Sendable, EventAckedMarked, Acknowledged},
	{Sendable, EventRefused, Sendable},
	{Sendable, EventUnsure, Sendable},
	{Sendable, EventExhausted, Dead},
	{Sendable, EventReleased, Sendable},
	{Sendable, EventRetry, Sendable},

	{Acknowledged, EventMarkerDeleted, Done},
	{Acknowledged, EventMarkerKept, Acknowledged},
	{Acknowledged, EventMarkerLeft, Done},
	{Acknowledged, EventReleased, Acknowledged},
	{Acknowledged, EventRetry, Acknowledged},

	{Dead, EventRetry, Sendable},
	{Dead, EventDiscard, None},
}

// Moves returns the table of legal moves.
func Moves() []Move { return append([]Move(nil), moves...) }

// Next says where an event leads from a state, and whether it is a legal move at all.
func Next(from State, event Event) (to State, legal bool) {
	for _, m := range moves {
		if m.From == from && m.Event == event {
			return m.To, true
		}
	}
	return from, false
}
