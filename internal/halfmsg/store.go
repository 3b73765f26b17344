package halfmsg

import (
	"context"
	"strings"
	"time"
)

// Result is what became of one message of a batch.
type Result struct {
	// State is the state the message has now, also when Err is ErrIllegal or ErrExists.
	State State
	// Err is nil when the move was made or had been made before by the same call.
	Err error
}

// Submitted is the answer to Submit for one message.
type Submitted struct {
	Result
	// Claim is set when Submit claimed the PENDING message for the caller, or SubmitTrusted made it SENDABLE. It is nil
	// when another owner holds the message, and in every other state. Its Token is empty, and its Body, when SubmitTrusted
	// made the message SENDABLE and did not claim it: the message waits for its delay, or for its turn.
	Claim *Claim
}

// The roles of a store follow. All of them hold for one implementation:
//   - methods may be called concurrently, and block until the store has answered or the context ends;
//   - batches of any size are taken and split as the store likes; the results are in the order of the request, one each,
//     and one message that fails fails alone;
//   - every move is one atomic step that changes the record and its place in the indexes together, and every call may be
//     repeated;
//   - times are the store's own clock, never the caller's.

// Intake is the store as producers' calls use it.
type Intake interface {
	// Create stores messages as PENDING, due ConfirmAfter from now. A name that is taken: the same content answers with
	// the state it has by now and no error, other content with ErrExists.
	// A store may bound how many unfinished messages a producer has; more of them get ErrOverQuota.
	Create(ctx context.Context, messages []Message) []Result
	// Submit makes messages due now and claims for lease those that nobody holds; ABANDONED ones become PENDING with
	// their attempts back at zero. SENDABLE, ACKNOWLEDGED, DEAD and final ones answer with their state and no error, but
	// ROLLED_BACK with ErrIllegal. One that another owner holds is confirmed again at once when that owner hears UNKNOWN.
	Submit(ctx context.Context, names []Name, lease time.Duration) []Submitted
	// SubmitTrusted stores Submits as verdicts COMMITTED: PENDING and ABANDONED messages become SENDABLE, whoever holds
	// them, and what their owners write afterwards gets ErrLeaseLost. They are due after their delay; those without a delay
	// are claimed for lease. The other states answer as Submit does.
	SubmitTrusted(ctx context.Context, names []Name, lease time.Duration) []Submitted
	// Rollback removes PENDING messages, whoever holds them. ROLLED_BACK ones answer with no error, others with
	// ErrIllegal and their state.
	Rollback(ctx context.Context, names []Name) []Result
}

// ConfirmStore is the store as the confirm loop uses it.
type ConfirmStore interface {
	Settler
	// PendingProducers names the producers that may have PENDING messages.
	PendingProducers(ctx context.Context) ([]string, error)
	// ClaimPending claims due PENDING messages for lease, of each producer at most what quota grants it, those due
	// longest first. Producers that quota does not name are left alone.
	ClaimPending(ctx context.Context, quota map[string]int, lease time.Duration) ([]Claim, error)
	// ClaimAcknowledged claims at most limit due ACKNOWLEDGED messages for lease, those due longest first, sharing the
	// limit fairly among producers. Of their content only the name and the callback target are known.
	ClaimAcknowledged(ctx context.Context, limit int, lease time.Duration) ([]Claim, error)
}

// SendStore is the store as the send loop uses it.
type SendStore interface {
	Settler
	// ClaimSendable claims at most limit due SENDABLE messages for lease, those due longest first, sharing the limit
	// fairly among producers.
	ClaimSendable(ctx context.Context, limit int, lease time.Duration) ([]Claim, error)
}

// Settler stores what owners found out.
type Settler interface {
	// Settle makes the moves of owners. One whose token does not own the message any more, or whose lease has ended by
	// the store's clock, gets ErrLeaseLost and the state the message has now; nothing is changed.
	Settle(ctx context.Context, settlements []Settlement) []Result
}

// Settlement is an owner's word on one message that it claimed.
type Settlement struct {
	Name  Name
	Token Token
	// Fingerprint is that of the claim, where there is one.
	Fingerprint string
	// Event must be one that Owned allows.
	Event Event
	// After is how long from now the message is due next, where it is not final then.
	After time.Duration
	// Hold keeps the lease that long from now rather than handing the message back, so that the owner can go on with
	// the next step. Zero hands it back. Only for moves to PENDING, SENDABLE or ACKNOWLEDGED.
	Hold time.Duration
	// Cause is kept as the last error, cut at MaxCause characters; empty leaves the last one standing.
	Cause string
	// Backlog is that of the claim: the store may take its time over it.
	Backlog bool
}

// Inspector is the store as operators use it.
type Inspector interface {
	// Get returns one message with its timeline, or ErrNotFound.
	Get(ctx context.Context, name Name) (Record, error)
	// List returns a page of the messages in one state, oldest first, bodies left out. A message that stands in that
	// state from the first page to the last is on at least one of them, whatever happens to the others.
	List(ctx context.Context, query Query) (Page, error)
	// Stats counts the messages of each state that Kept lists, in the order of State.
	Stats(ctx context.Context) ([]Stat, error)
	// Retry makes messages due now with their attempts back at zero: ABANDONED becomes PENDING, DEAD becomes SENDABLE,
	// PENDING, SENDABLE and ACKNOWLEDGED stay what they are. Final ones get ErrIllegal. Who asked for it, and why, goes on
	// their timelines.
	Retry(ctx context.Context, names []Name, by, reason string) []Result
	// Discard removes PENDING, ABANDONED and DEAD messages without a trace; others get ErrIllegal. Only those that stand
	// in the state from are removed; None is any of the three. Whoever discards what he saw ABANDONED must not remove
	// what a late Submit has made PENDING since.
	Discard(ctx context.Context, names []Name, from State) []Result
}

// Query asks for a page of messages.
type Query struct {
	// State must be one that Kept lists.
	State State
	// Producer limits the page to one producer; empty is all.
	Producer string
	// Exchange limits it to messages that go to one exchange; empty is all. Of ACKNOWLEDGED ones that is not known any more.
	Exchange string
	// MinAge limits it to messages that were created at least so long ago.
	MinAge time.Duration
	// Error limits it to messages whose last error holds this text, in whatever case; empty is all.
	Error string
	// Limit is the page's size.
	Limit int
	// Scan is about how many messages may be looked at for a page, and Patience about how long: the page may then hold fewer
	// than Limit, or none, and still not be the last. Zero is as many, or as long, as it takes.
	Scan     int
	Patience time.Duration
	// Cursor is the Next of the page before; empty is the first page.
	Cursor string
}

// Filters says whether a message must be read to know whether it is on the page.
func (q *Query) Filters() bool { return q.Exchange != "" || q.Error != "" }

// Matches says whether a record of the query's state, producer and age is on the page.
func (q *Query) Matches(r *Record) bool {
	return (q.Exchange == "" || r.Exchange == q.Exchange) &&
		(q.Error == "" || strings.Contains(strings.ToLower(r.LastError), strings.ToLower(q.Error)))
}

// Page is a part of a listing.
type Page struct {
	Records []Record
	// Looked is how many messages were looked at for it.
	Looked int
	// Next is empty on the last page.
	Next string
}

// Stat counts the messages of one state.
type Stat struct {
	State State
	Count int64
	// OldestAt is when the oldest of them was created; zero when there is none.
	OldestAt time.Time
	// FirstDueAt is when the first of them is due, the end of its lease where it has an owner: long past when nobody comes
	// to it. Zero when there is none, or nothing happens by itself.
	FirstDueAt time.Time
}

// Owner is an instance that works on messages.
type Owner struct {
	Instance string
	// Leases is how many of the leases that were looked at are its own, and Until when the last of them ends.
	Leases int
	Until  time.Time
}

// Owners are the instances that work on messages now.
type Owners struct {
	// Held is how many messages are in somebody's hands, or were in those of one that is gone.
	Held int64
	// All are those found among the leases that were looked at, by name.
	All []Owner
}

// Watcher is told of the moves this instance has stored, right after they were. It must not block.
type Watcher interface {
	Moved(moves []Moved)
}

// Moved tells that a message has reached a state.
type Moved struct {
	Name  Name
	State State
}
