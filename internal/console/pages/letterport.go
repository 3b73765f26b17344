package pages

import (
	"context"
	"time"
)

// Letters are the consumers' dead letters in the queues that the configuration names. Its errors are fit for readers:
// an unknown queue or letter, and any other refusal, is a RefusedError.
type Letters interface {
	// Queues are the queues, by their names.
	Queues(ctx context.Context) []LetterQueue
	// List gives a page of letters, the oldest first.
	List(ctx context.Context, q LetterQuery) (LetterPage, error)
	// Get gives the oldest letter with a name.
	Get(ctx context.Context, queue, name string) (Letter, error)
	// Count counts the letters of a change, which changes nothing yet.
	Count(ctx context.Context, c LetterChange) (LetterTally, error)
	// Change replays or discards letters, the oldest first, and records the change.
	Change(ctx context.Context, c LetterChange) (LettersChanged, error)
}

// LetterQueue is a queue of dead letters.
type LetterQueue struct {
	// Name is the name in the configuration; Broker is empty for the default broker.
	Name, Queue, Broker string
	// Count is the number of letters. Known says that the broker has said so, and AtMost that settled letters count too.
	Count         int
	Known, AtMost bool
	// Oldest is since when the oldest letter waits; zero where the time is not known.
	Oldest time.Time
	// Problem is why the broker said nothing.
	Problem string
}

// LetterQuery selects letters of a queue. Empty fields select any.
type LetterQuery struct {
	// Queue is the name of the queue in the configuration.
	Queue string
	LetterFilter
	// After is how many letters of the queue are before the page.
	After int
}

// LetterFilter selects letters by their content.
type LetterFilter struct {
	// Names are PRODUCER/ID, or PRODUCER/ for letters without an id.
	Names []string
	// Producer, Consumer and Exchange are exact, and Cause is a part of a cause.
	Producer, Consumer, Exchange, Cause string
	// OlderThan is the least age.
	OlderThan time.Duration
}

// LetterPage is a part of the letters of a queue.
type LetterPage struct {
	Letters []Letter
	// Next is the After of the next page; 0: this page is the last.
	Next int
	// Note says why the page ends early; empty: it does not.
	Note string
}

// Letter is a dead letter.
type Letter struct {
	Producer, ID string
	// Consumer is the queue, topic or stream that the message was consumed from.
	Consumer, Exchange, RoutingKey string
	// Reason is the last failure, and FirstCause the first.
	Reason, FirstCause string
	Retries, Attempt   int
	// Since is since when the letter waits.
	Since time.Time
	// ContentType, Headers and Body are those of the message. The letters of a list have no Body.
	ContentType string
	Headers     map[string]string
	Body        []byte
}

// Name is PRODUCER/ID, or PRODUCER/ for a letter without an id.
func (l Letter) Name() string { return l.Producer + "/" + l.ID }

// LetterChange is a change of letters.
type LetterChange struct {
	LetterQuery
	// Discard removes the letters. Otherwise they are replayed.
	Discard bool
	// Limit is how many letters change at most.
	Limit  int
	Reason string
}

// LetterTally is the number of letters before a change.
type LetterTally struct {
	Count int
	// AtLeast says that there may be more.
	AtLeast bool
	// Destinations are where a replay publishes the letters; none for a discard.
	Destinations []LetterDestination
}

// LetterDestination is where a replay publishes a number of letters.
type LetterDestination struct {
	Exchange, RoutingKey string
	Letters              int
	// Refused is why these letters stay; empty: they are published.
	Refused string
}

// LettersChanged is the result of a change.
type LettersChanged struct {
	// Done is how many letters were changed, and More says that letters may be left to change.
	Done int
	More bool
	// Problem is why letters stay; empty: none was refused.
	Problem string
}
