package consumer

import "context"

// DeadLetterPort is how DeadLetters reaches the letters of one broker.
type DeadLetterPort interface {
	// Depth asks the broker for the number of letters, and reads none.
	Depth(ctx context.Context) (int, error)
	// Count is the number of letters that a scan would show.
	Count(ctx context.Context) (int, error)
	// Scan shows letters to visit, the oldest first, until a visit is the last one or fails. Scan returns the error of a
	// visit.
	Scan(ctx context.Context, s Scan, visit func(FoundLetter) (last bool, err error)) error
}

// Scan says which letters a port shows, and why.
type Scan struct {
	// Match reports whether to show a letter. A port calls Match once for each letter.
	Match func(*Letter) bool
	// Limit is how many letters are shown at most; the visits end the scan there.
	Limit int
	// Purpose is what the visits do.
	Purpose Purpose
}

// Purpose is what a scan is for.
type Purpose int

const (
	// ToLook reads letters.
	ToLook Purpose = iota
	// ToFindOldest reads one letter, and must leave it at its place.
	ToFindOldest
	// ToChange publishes and removes letters.
	ToChange
)

// FoundLetter is a letter that a scan shows.
type FoundLetter interface {
	// Content is the letter, with bounded texts (Letter.Bounded).
	Content() *Letter
	// Publish publishes a copy to the letter's first destination: marked by its attempt, without the headers of failures.
	// It returns nil once the broker has the copy.
	Publish(ctx context.Context) error
	// Remove removes the letter, also after the end of the context: a replayed letter that stays may be replayed again.
	// how says what became of it, for brokers that keep a note.
	Remove(ctx context.Context, how string) error
}
