package halfmsg

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// Name names a message: the id is the producer's own business number and is unique within the producer.
type Name = publish.Name

// ParseName reads PRODUCER/ID.
func ParseName(s string) (Name, error) {
	producer, id, found := strings.Cut(s, "/")
	if !found || producer == "" || id == "" {
		return Name{}, fmt.Errorf("%q does not name a message; write PRODUCER/ID, such as orders/1001", s)
	}
	return Name{Producer: producer, ID: id}, nil
}

// MaxBody is the largest body, in bytes, that a coordinator can be set up to take.
const MaxBody = 8 << 20

// Message is the content of a SendHalfMessage. A stored Message never changes.
type Message struct {
	Name
	// Broker is the name of the broker to publish to; empty is the default broker.
	Broker      string
	Exchange    string
	RoutingKey  string
	ContentType string
	Headers     map[string]string
	Body        []byte
	// OrderingKey names the chain of the message: the broker acknowledges the messages of one producer with one key in the
	// order in which they were stored. Empty for no order.
	OrderingKey string
	// Delay is how long the message waits as SENDABLE before it is published.
	Delay time.Duration
	// EarlierCopies is how many copies may have been published before the store had the message.
	EarlierCopies int
	// CallbackTarget is where the producer serves ProducerService.
	CallbackTarget string
	// MarkerStore is the identity of the store that holds the business marker; empty: any store's answer counts.
	MarkerStore string
	// ConfirmAfter is how long after SendHalfMessage the first Confirm comes when no Submit arrives.
	ConfirmAfter time.Duration
	// Trace is the W3C traceparent of the SendHalfMessage; empty for none.
	Trace string
	// Replayed says that an operator has the message published again, under the name of a finished message.
	Replayed bool
}

// Digest is a fingerprint of the content that a repeated SendHalfMessage must match: destination, body, ordering key
// and marker store. A broker is part of the destination. The callback target, ConfirmAfter, the trace and EarlierCopies
// are left out: a producer may repeat a call from another address. A call from another marker store is another
// business.
func (m *Message) Digest() string {
	h := sha256.New()
	field := func(b []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		h.Write(size[:])
		h.Write(b)
	}
	field([]byte(m.Exchange))
	field([]byte(m.RoutingKey))
	field([]byte(m.ContentType))
	field(binary.BigEndian.AppendUint64(nil, uint64(m.Delay.Milliseconds()))) //nolint:gosec // the same bits
	field(m.Body)
	for _, key := range slices.Sorted(maps.Keys(m.Headers)) {
		field([]byte(key))
		field([]byte(m.Headers[key]))
	}
	// Headers come in pairs, and none has an empty name, so these fields cannot be mistaken for headers or for each other.
	if m.OrderingKey != "" {
		field(nil)
		field([]byte("ordering_key"))
		field([]byte(m.OrderingKey))
	}
	if m.MarkerStore != "" {
		field(nil)
		field(nil)
		field([]byte(m.MarkerStore))
	}
	if m.Broker != "" {
		field([]byte(m.Broker))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Token is a fencing token: its holder claimed the message, and no other instance has claimed the message since. An
// operator can read the instance and the claim in the token.
type Token string

// Claim is a message with an owner, until the lease ends or the owner settles the message.
type Claim struct {
	Message
	State State
	Token Token
	// Fingerprint is the Digest of the stored content, or empty if the store does not use fingerprints.
	Fingerprint string
	// ConfirmAttempts counts the UNKNOWN answers so far.
	ConfirmAttempts int
	// PublishAttempts counts the broker's refusals so far.
	PublishAttempts int
	// Copies counts how many copies may have reached the broker already: refused, unsure, or published by an owner whose
	// lease ended. The header of the next copy has the number Copies+1.
	Copies int
	// DeleteAttempts counts the failed DeleteBusiness calls since the message is ACKNOWLEDGED.
	DeleteAttempts int
	// CreatedAt is when SendHalfMessage stored the message, by the store's clock.
	CreatedAt time.Time
	// ClaimedAt is when the store claimed the message, by the store's clock.
	ClaimedAt time.Time
	// AwaitedSince is since when a committed successor of the message's chain waits for the verdict about this message;
	// zero where none does.
	AwaitedSince time.Time
	// SubmittedAt is when the claiming Submit came, by this process's clock; zero for other claims.
	SubmittedAt time.Time
	// SendableAt is when the message became SENDABLE, by the store's clock; zero while it is PENDING.
	SendableAt time.Time
	// Backlog says that a pass has claimed the message. No caller waits for the message, which yields to fresh messages.
	Backlog bool
	// Prompt says that the producer has answered for the message without delay. Such a backlog yields less: it comes at a
	// steady rate, while the answers of a slow producer come in bursts.
	Prompt bool
}

// Record is a message as an operator sees it. In a final state only Name, State and UpdatedAt are known. An
// ACKNOWLEDGED message has no content except the callback target.
type Record struct {
	Message
	State           State
	CreatedAt       time.Time
	UpdatedAt       time.Time
	DueAt           time.Time
	ConfirmAttempts int
	PublishAttempts int
	DeleteAttempts  int
	// LastError is the latest error, and ErrorAt when the error was stored.
	LastError  string
	ErrorAt    time.Time
	LeaseOwner string
	LeaseUntil time.Time
	// SendableAt is when the verdict was stored; zero while the message is PENDING or ACKNOWLEDGED.
	SendableAt time.Time
	// HeldBy is the id of the first message of the chain, for which a committed message waits; empty for other messages,
	// and DueAt is zero while the message waits so.
	HeldBy string
	// AwaitedSince is that of Claim.
	AwaitedSince time.Time
	// Parked says that the message is due and waits for its broker, which takes no messages now.
	Parked bool
	// Timeline has the stored events; only Get returns a timeline. Story has all events.
	Timeline Timeline
}

// MaxCause is how many characters of a cause a store keeps.
const MaxCause = 1000

// lastTellable is the last second of the years that JSON and the API can tell.
var lastTellable = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)

// Tellable is the time, or the nearest one that JSON and the API can tell: Redis and the headers of a message may hold
// any number, and one time out of range would leave a whole answer untold.
func Tellable(t time.Time) time.Time {
	switch {
	case t.After(lastTellable):
		return lastTellable
	case t.Year() < 1:
		return time.Time{}
	}
	return t
}
