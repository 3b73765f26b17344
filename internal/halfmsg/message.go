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
)

// Name names one message: the id is the producer's own business number and is unique within the producer.
type Name struct {
	Producer string
	ID       string
}

// String gives PRODUCER/ID, the form people type.
func (n Name) String() string { return n.Producer + "/" + n.ID }

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

// Message is what a producer sends with SendHalfMessage. It never changes once it is stored.
type Message struct {
	Name
	Exchange    string
	RoutingKey  string
	ContentType string
	Headers     map[string]string
	Body        []byte
	// Delay is how long after it became SENDABLE the message is published.
	Delay time.Duration
	// CallbackTarget is where the producer serves ProducerService.
	CallbackTarget string
	// ConfirmAfter is how long after SendHalfMessage the first Confirm comes when no Submit arrives.
	ConfirmAfter time.Duration
	// Trace is the W3C traceparent of the call that sent it; empty for none.
	Trace string
}

// Digest is a fingerprint of the content that a repeated SendHalfMessage must match: where the message goes and what it
// says. The callback target, ConfirmAfter and the trace are left out: a producer that moved to another address and repeats
// its call has still sent the same message.
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
	field(binary.BigEndian.AppendUint64(nil, uint64(m.Delay.Milliseconds())))
	field(m.Body)
	for _, key := range slices.Sorted(maps.Keys(m.Headers)) {
		field([]byte(key))
		field([]byte(m.Headers[key]))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// Token proves that its holder claimed a message and that nobody has claimed it since. It names the instance and the
// claim, so an operator can read it.
type Token string

// Claim is a message in the hands of an owner, until its lease ends or it settles it.
type Claim struct {
	Message
	State State
	Token Token
	// Fingerprint is the Digest of the content as the store has it, or empty where the store has no use for it.
	Fingerprint string
	// ConfirmAttempts counts the UNKNOWN answers so far.
	ConfirmAttempts int
	// PublishAttempts counts the broker's refusals so far.
	PublishAttempts int
	// Copies counts how many copies may have reached the broker already: refused, unsure, or in the hands of an owner
	// whose lease ended. The next one is copy number Copies+1 and says so in its header.
	Copies int
	// DeleteAttempts counts the DeleteBusiness calls that failed since the message is ACKNOWLEDGED.
	DeleteAttempts int
	// CreatedAt is when SendHalfMessage stored the message, by the store's clock.
	CreatedAt time.Time
	// SubmittedAt is when the Submit came that claimed the message, by this process's clock; zero for other claims.
	SubmittedAt time.Time
	// SendableAt is when the message became SENDABLE, by the store's clock; zero while it is PENDING.
	SendableAt time.Time
	// Backlog says that a pass has claimed the message, so that nobody waits for it just now: it makes way for those that
	// somebody waits for.
	Backlog bool
}

// Record is a message as an operator sees it. Of one in a final state only Name, State and UpdatedAt are known; of an
// ACKNOWLEDGED one the content is gone but for the callback target.
type Record struct {
	Message
	State           State
	CreatedAt       time.Time
	UpdatedAt       time.Time
	DueAt           time.Time
	ConfirmAttempts int
	PublishAttempts int
	DeleteAttempts  int
	// LastError is what went wrong last, and ErrorAt when it was written down.
	LastError  string
	ErrorAt    time.Time
	LeaseOwner string
	LeaseUntil time.Time
	// SendableAt is when its verdict was stored; zero while it is PENDING, and of an ACKNOWLEDGED one.
	SendableAt time.Time
	// Timeline is what the store keeps of what happened to it; only Get tells it. Story has all of it.
	Timeline Timeline
}

// MaxCause is how many characters of a cause a store keeps.
const MaxCause = 1000
