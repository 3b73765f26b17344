package halfmsg

import (
	"context"
	"time"
)

// Historian is the store as the history of finished messages uses it. A receipt keeps the name, the end and the time of
// a finished message; an archive keeps the whole message.
type Historian interface {
	// Archives says whether the store puts finished messages into an archive.
	Archives() bool
	// ListFinished returns a page of finished messages without their bodies: from the archive the newest first, from the
	// receipts in no order.
	ListFinished(ctx context.Context, query FinishedQuery) (FinishedPage, error)
	// GetFinished returns the entry of the archive with its body. An empty entry is the newest entry of the message.
	// ErrNotFound says that there is none. Without a receipt the archive is searched until the context ends.
	GetFinished(ctx context.Context, name Name, entry string) (Finished, error)
	// Replay stores messages of the archive as SENDABLE again, with the operator and the reason on their timelines.
	// Unfinished messages, and messages without a committed verdict, get ErrIllegal. A name that has other content gets
	// ErrExists.
	// An entry is replayed no more once its message has ended again, so that a repeated call with entries makes no second
	// copy. A name without an entry means the newest entry, also one that a replay has made.
	Replay(ctx context.Context, replays []Replay, how ReplayHow) []Result
	// Archive counts what is in the archive.
	Archive(ctx context.Context) (ArchiveStat, error)
}

// Ending is how a message ended.
type Ending string

// The endings. They are words of the archive and of receipts.
const (
	EndedDone       Ending = "done"
	EndedRolledBack Ending = "rolled_back"
	EndedDiscarded  Ending = "discarded"
)

// Endings lists the endings.
func Endings() []Ending { return []Ending{EndedDone, EndedRolledBack, EndedDiscarded} }

// Finished is a finished message.
type Finished struct {
	Message
	// Entry names the entry of the archive; empty for a receipt.
	Entry string
	Ended Ending
	At    time.Time
	// CreatedAt and CommittedAt are zero where they are not known, and CommittedAt where the message was never committed.
	CreatedAt, CommittedAt time.Time
	// Copies is how many copies may have reached the broker.
	Copies int
	// Fingerprint is the Digest of the content.
	Fingerprint string
	// BodyLeftOut says that the body was too large for the archive.
	BodyLeftOut bool
	// Damaged says why the content cannot be read; nil where it can.
	Damaged error
}

// Replayable says whether the message may be published again: its verdict was committed, and its content is there.
func (f *Finished) Replayable() bool {
	committed := f.Ended == EndedDone || f.Ended == EndedDiscarded && !f.CommittedAt.IsZero()
	return committed && f.Entry != "" && !f.BodyLeftOut && f.Damaged == nil
}

// FinishedQuery asks for a page of finished messages. Empty fields are any.
type FinishedQuery struct {
	// Receipts asks for the receipts also where there is an archive. Receipts know Producer, ID, Ended, Since and Until
	// only.
	Receipts     bool
	Producer, ID string
	Ended        Ending
	Exchange     string
	RoutingKey   string
	HeaderName   string
	HeaderValue  string
	Since, Until time.Time
	Limit, Scan  int
	Patience     time.Duration
	Cursor       string
}

// Matches says whether a finished message is on the page.
func (q *FinishedQuery) Matches(f *Finished) bool {
	if q.HeaderName != "" {
		if value, has := f.Headers[q.HeaderName]; !has || value != q.HeaderValue {
			return false
		}
	}
	return (q.Producer == "" || f.Producer == q.Producer) && (q.ID == "" || f.ID == q.ID) &&
		(q.Ended == "" || f.Ended == q.Ended) &&
		(q.Exchange == "" || f.Exchange == q.Exchange) && (q.RoutingKey == "" || f.RoutingKey == q.RoutingKey) &&
		(q.Since.IsZero() || !f.At.Before(q.Since)) && (q.Until.IsZero() || f.At.Before(q.Until))
}

// OfContent says whether the query asks about content, which receipts do not have.
func (q *FinishedQuery) OfContent() bool {
	return q.Exchange != "" || q.RoutingKey != "" || q.HeaderName != ""
}

// FinishedPage is a part of a history.
type FinishedPage struct {
	Messages []Finished
	// Looked is how many entries or keys were looked at for the page.
	Looked int
	// Next is empty on the last page.
	Next string
}

// Replay names a message of the archive and how to publish it again.
type Replay struct {
	Name Name
	// Entry is the entry of the archive; empty is the newest of the message.
	Entry string
	// Suffix is added to the id of the message. With an empty one the message has its own id, and consumers that know the
	// id drop the copy.
	Suffix string
}

// ReplayHow says who replays messages, and why. A dry run changes nothing and says what would become of them.
type ReplayHow struct {
	By, Reason string
	DryRun     bool
	// MayPublish says why a message may not be published any more. Nil: every message may be.
	MayPublish func(m *Message) error
}

// Becomes is the name of the message that is published.
func (r Replay) Becomes() Name { return Name{Producer: r.Name.Producer, ID: r.Name.ID + r.Suffix} }

// ArchiveStat counts what is in the archive.
type ArchiveStat struct {
	Messages int64
	// OldestAt is when the oldest message in the archive ended.
	OldestAt time.Time
	// Dropped is how many messages ended lately that the archive did not take: Redis was nearly full.
	Dropped int64
}
