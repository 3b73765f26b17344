package halfmsg

import "errors"

// The kinds of a LettersError.
var (
	// ErrNoLetterQueues: the configuration names no queue of dead letters.
	ErrNoLetterQueues = errors.New("no queue of dead letters is configured")
	// ErrNoLetter: the configuration has no such queue, or the queue no such letter.
	ErrNoLetter = errors.New("no such dead letter")
	// ErrLettersBusy: another look at the queue, or a change, is under way.
	ErrLettersBusy = errors.New("another call holds the dead letters")
	// ErrTooManyLetters: the queue has more letters than a look may read.
	ErrTooManyLetters = errors.New("too many dead letters for a look")
	// ErrLettersUnread: the broker has not shown the letters.
	ErrLettersUnread = errors.New("the dead letters cannot be read")
)

// LettersError says why consumers' dead letters cannot be read or changed. Nothing was changed then.
type LettersError struct {
	// Kind is one of the errors above.
	Kind error
	// Cause is the broker's error, if there is one.
	Cause error
	// Text is for the caller.
	Text string
}

// Error implements error.
func (e *LettersError) Error() string { return e.Text }

// Unwrap implements errors.Is and errors.As.
func (e *LettersError) Unwrap() []error { return []error{e.Kind, e.Cause} }
