package halfmsg

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// Result is the result of a call for one message of a batch.
type Result struct {
	// State is the present state of the message, also when Err is ErrIllegal or ErrExists.
	State State
	// Waits says that the move has made the message SENDABLE behind another message of its chain: the message has no owner
	// now, and is due when the messages before it have left the chain.
	Waits bool
	// Err is nil when the move was made, now or before by the same call.
	Err error
}

// Submitted is the answer to Submit for one message.
type Submitted struct {
	Result
	// Claim is set when Submit claimed the PENDING message for the caller, or SubmitTrusted made the message SENDABLE.
	// Claim is nil when another owner holds the message, and in every other state. Token and Body are empty when
	// SubmitTrusted made the message SENDABLE without a claim: the message waits for its delay, or for its turn.
	Claim *Claim
}

// The roles of a store follow. All of them hold for one implementation:
//   - methods may be called concurrently, and block until the store has answered or the context ends;
//   - batches may have any size, and the store may split them; the results are in the order of the request, and a
//     message that fails fails alone;
//   - every move is an atomic step that changes the record and its place in the indexes together, and every call may be
//     repeated;
//   - times are the store's own clock, never the caller's;
//   - of the PENDING, SENDABLE, ABANDONED and DEAD messages of one producer with one ordering key, which are its chain,
//     only the first that was stored is ever claimed as SENDABLE. The move that takes the first one out of the chain
//     makes a SENDABLE successor due. A message that becomes SENDABLE behind others makes the questions about the
//     PENDING ones before it due. A replay belongs to no chain.

// Intake is the store as producers' calls use it.
type Intake interface {
	// Create stores messages as PENDING, due ConfirmAfter from now. If the name is taken, the same content gets the
	// present state and no error, and other content gets ErrExists. A store may bound how many unfinished messages a
	// producer has; further messages get ErrOverQuota; and of one ordering key, further ones get ErrKeyHeld.
	Create(ctx context.Context, messages []Message) []Result
	// Recall answers about messages that are stored already as Create does, and stores none: others get ErrNotFound. It
	// needs no room in the store.
	Recall(ctx context.Context, messages []Message) []Result
	// Submit makes messages due now and claims the messages without an owner for lease. ABANDONED messages become PENDING,
	// with their attempts back at zero. SENDABLE, ACKNOWLEDGED, DEAD and final messages get their state and no error,
	// except ROLLED_BACK, which gets ErrIllegal. A message with another owner is confirmed again at once when the owner
	// gets the verdict UNKNOWN.
	Submit(ctx context.Context, names []Name, lease time.Duration) []Submitted
	// SubmitTrusted stores Submits as verdicts COMMITTED: PENDING and ABANDONED messages become SENDABLE, even if they
	// have an owner, whose later writes get ErrLeaseLost. They are due after their delay, or in their turn; messages that
	// wait for neither are claimed for lease. In other states SubmitTrusted is like Submit.
	SubmitTrusted(ctx context.Context, names []Name, lease time.Duration) []Submitted
	// Rollback removes PENDING messages, even if they have an owner. ROLLED_BACK messages get no error, others get
	// ErrIllegal and their state.
	Rollback(ctx context.Context, names []Name) []Result
	// Lane names the server that answers for a message; "" where one server answers for all. A call about messages of
	// several lanes waits for the slowest of these servers.
	Lane(name Name) string
}

// ConfirmStore is the store as the confirm loop uses it.
type ConfirmStore interface {
	Settler
	// PendingProducers names the producers that may have PENDING messages.
	PendingProducers(ctx context.Context) ([]string, error)
	// ClaimPending claims due PENDING messages for lease, the longest due first, and of each producer at most its quota.
	// Producers without a quota get no claim. Due messages of the targets in without are not claimed and delay no claim of
	// the others: a store may make them due later.
	ClaimPending(ctx context.Context, quota map[string]int, lease time.Duration, without ...LeftOut) ([]Claim, error)
	// ClaimAcknowledged claims at most limit due ACKNOWLEDGED messages for lease, the longest due first, with the limit
	// shared fairly among producers, and leaves targets out as ClaimPending does. Of the content only the name and the
	// callback target are known.
	ClaimAcknowledged(ctx context.Context, limit int, lease time.Duration, without ...LeftOut) ([]Claim, error)
}

// LeftOut is a target that takes no call now, as far as a coordinator knows.
type LeftOut struct {
	// Target has the address as the messages name it, which is empty for messages that name none.
	Target
	// Wait is after how long a due message of the target is due again.
	Wait time.Duration
	// MaxAge is from which age on messages are claimed in spite of their target; 0 is none.
	MaxAge time.Duration
}

// SendStore is the store as the send loop uses it.
type SendStore interface {
	Settler
	// ClaimSendable claims at most limit due SENDABLE messages for lease, the longest due first, with the limit shared
	// fairly among producers. Only messages for the named brokers are claimed, "" for the default broker; without names
	// those for every broker. Due messages for other brokers delay no claim: a store may park them until a call names
	// their broker.
	ClaimSendable(ctx context.Context, limit int, lease time.Duration, brokers ...string) ([]Claim, error)
}

// Settler stores the outcomes of owners.
type Settler interface {
	// Settle makes the moves of owners. A token that does not own the message any more, or whose lease has ended by the
	// store's clock, gets ErrLeaseLost and the present state of the message, and changes nothing.
	Settle(ctx context.Context, settlements []Settlement) []Result
}

// Settlement is an owner's outcome for a claimed message.
type Settlement struct {
	Name  Name
	Token Token
	// OrderingKey is that of the claim, by which a store may find the message.
	OrderingKey string
	// Fingerprint is the fingerprint of the claim, if there is one.
	Fingerprint string
	// Event must be allowed by Owned.
	Event Event
	// After is the time until the message is due next, unless the message is final then.
	After time.Duration
	// Hold is how long from now the owner keeps the lease, to go on with the next step. Zero hands the message back. Only
	// for moves to PENDING, SENDABLE or ACKNOWLEDGED.
	Hold time.Duration
	// Cause is kept as the last error, cut at MaxCause characters; empty keeps the last error.
	Cause string
	// Backlog is Backlog of the claim: the move may yield to others.
	Backlog bool
	// Prompt is Prompt of the claim: the move of a backlog yields less.
	Prompt bool
}

// Inspector is the store as operators use it.
type Inspector interface {
	// Get returns one message with its timeline, or ErrNotFound.
	Get(ctx context.Context, name Name) (Record, error)
	// List returns a page of the messages in a state, oldest first, without bodies. A message that is in the state from
	// the first page to the last is on at least one page, even if other messages move meanwhile.
	List(ctx context.Context, query Query) (Page, error)
	// Sample reads some of the messages in a state, without bodies: about as many as the query's Limit, for about as long
	// as its Patience. A query has no Scan and no Cursor here.
	Sample(ctx context.Context, query Query) (Sample, error)
	// Find returns the messages with an id, without bodies, of the producers that have messages and of the named ones.
	Find(ctx context.Context, id string, producers []string) ([]Record, error)
	// Stats counts the messages of each state that Kept lists, in the order of State.
	Stats(ctx context.Context) ([]Stat, error)
	// Retry makes messages due now with their attempts back at zero: ABANDONED becomes PENDING, DEAD becomes SENDABLE,
	// PENDING, SENDABLE and ACKNOWLEDGED keep their state. Final messages get ErrIllegal. The operator and the reason go
	// on the timelines.
	Retry(ctx context.Context, names []Name, by, reason string) []Result
	// Discard removes PENDING, ABANDONED and DEAD messages without a receipt; others get ErrIllegal. Only messages in the
	// state from are removed; None is any of the three. An operator who discards an ABANDONED message must not remove a
	// message that a late Submit has made PENDING since.
	Discard(ctx context.Context, names []Name, from State) []Result
}

// Query asks for a page of messages.
type Query struct {
	// State must be in the list of Kept.
	State State
	// Producer limits the page to one producer; empty is all.
	Producer string
	// Exchange limits the page to messages for one exchange, which is DefaultExchange for the one without a name; empty is
	// all. The exchange of ACKNOWLEDGED messages is not known any more.
	Exchange string
	// Broker limits the page to messages for one broker, which is DefaultBroker for messages that name none; empty is
	// all. The broker of ACKNOWLEDGED messages is not known any more.
	Broker string
	// MinAge limits the page to messages of at least this age.
	MinAge time.Duration
	// Error limits the page to messages whose last error contains this text, in upper or lower case; empty is all.
	Error string
	// Cause limits the page to messages whose CauseOf is the cause of this text, which may be an error of one of them;
	// empty is all.
	Cause string
	// IDPrefix limits the page to messages whose ids begin with this text; empty is all.
	IDPrefix string
	// RoutingKey limits the page to messages with this routing key, and HeaderName to messages with this header and the
	// value HeaderValue; empty is all. Neither is known of ACKNOWLEDGED messages any more.
	RoutingKey, HeaderName, HeaderValue string
	// Limit is the page's size.
	Limit int
	// Scan is about how many messages may be read for a page, and Patience about how long: the page may then hold fewer
	// than Limit, or none, and still not be the last. Zero is no limit.
	Scan     int
	Patience time.Duration
	// Cursor is the Next of the page before; empty is the first page.
	Cursor string
}

// Filters says whether the record of a message decides whether the message is on the page.
func (q *Query) Filters() bool {
	return q.Exchange != "" || q.Broker != "" || q.Error != "" || q.Searches()
}

// Searches says whether the query has a filter beyond the exchange, the broker and the error.
func (q *Query) Searches() bool {
	return q.Cause != "" || q.IDPrefix != "" || q.RoutingKey != "" || q.HeaderName != ""
}

// The default broker and the default exchange in a Query, where an empty name is any.
const (
	DefaultBroker   = "(default)"
	DefaultExchange = "(default)"
)

// EmptyField is a consumer or a routing key without text in a filter of dead letters, where an empty one is any.
const EmptyField = "(empty)"

// Matches says whether a record of the query's state, producer and age is on the page.
func (q *Query) Matches(r *Record) bool {
	return q.matchesTarget(r) &&
		(q.IDPrefix == "" || strings.HasPrefix(r.ID, q.IDPrefix)) &&
		(q.Error == "" || strings.Contains(strings.ToLower(r.LastError), strings.ToLower(q.Error))) &&
		(q.Cause == "" || CauseOf(r) == Cause(q.Cause, Name{}))
}

// matchesTarget is the part of Matches that an ACKNOWLEDGED message cannot tell.
func (q *Query) matchesTarget(r *Record) bool {
	if r.State == Acknowledged {
		return q.Exchange == "" && q.Broker == "" && q.RoutingKey == "" && q.HeaderName == ""
	}
	value, has := r.Headers[q.HeaderName]
	return (q.Exchange == "" || cmp.Or(r.Exchange, DefaultExchange) == q.Exchange) &&
		(q.Broker == "" || cmp.Or(r.Broker, DefaultBroker) == q.Broker) &&
		(q.RoutingKey == "" || r.RoutingKey == q.RoutingKey) &&
		(q.HeaderName == "" || has && value == q.HeaderValue)
}

// Sample is a part of the messages of a query, evenly from the oldest to the newest of each producer.
type Sample struct {
	// Records are those that match.
	Records []Sampled
	// Looked is how many messages were read, and Total how many stand in the state, producer and age of the query. The
	// sample is complete when both are equal.
	Looked, Total int64
}

// Sampled is a message, and how many messages of its producer stand behind it.
type Sampled struct {
	Record
	Weight float64
}

// Page is a part of a listing.
type Page struct {
	Records []Record
	// Looked is how many messages were read for the page.
	Looked int
	// Next is empty on the last page.
	Next string
}

// Stat counts the messages of one state.
type Stat struct {
	State State
	Count int64
	// OldestAt is when the oldest message was created; zero without messages.
	OldestAt time.Time
	// FirstDueAt is when the first message is due, which is the end of its lease if the message has an owner. A time long
	// past says that no instance claims the message. Zero without messages, or if nothing happens by itself.
	FirstDueAt time.Time
	// Held counts the SENDABLE messages that wait for an earlier message of their chain.
	Held int64
	// Producers counts the PENDING messages of each producer that has some; nil in other states.
	Producers map[string]int64
}

// Owner is an instance that works on messages.
type Owner struct {
	Instance string
	// Leases is how many of the leases read belong to the instance, and Until when the last of them ends.
	Leases int
	Until  time.Time
}

// Owners are the instances that work on messages now.
type Owners struct {
	// Held is how many messages are leased, also by instances that have ended.
	Held int64
	// All are the owners of the leases read, by name.
	All []Owner
}

// Watcher gets the moves of this instance, right after they are stored. Moved must not block.
type Watcher interface {
	Moved(moves []Moved)
}

// Moved is a message with its new state.
type Moved struct {
	Name  Name
	State State
}
