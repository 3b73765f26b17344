package halfmsg

import "errors"

// The kinds of a DeadLettersError.
var (
	// ErrNoDeadLetterQueues: the configuration names no queue of dead letters.
	ErrNoDeadLetterQueues = errors.New("no queue of dead letters is configured")
	// ErrNoDeadLetter: the configuration has no such queue, or the queue no such dead letter.
	ErrNoDeadLetter = errors.New("no such dead letter")
	// ErrDeadLettersBusy: another look at the queue, or a change, is under way.
	ErrDeadLettersBusy = errors.New("another call holds the dead letters")
	// ErrTooManyDeadLetters: the queue has more dead letters than a look may read.
	ErrTooManyDeadLetters = errors.New("too many dead letters for a look")
	// ErrDeadLettersUnreadable: the broker has not shown the dead letters.
	ErrDeadLettersUnreadable = errors.New("the dead letters cannot be read")
)

// DeadLettersError says why consumers' dead letters cannot be read or changed. Nothing was changed then.
type DeadLettersError struct {
	// Kind is one of the errors above.
	Kind error
	// Cause is the broker's error, if there is one.
	Cause error
	// Text is for the caller.
	Text string
}

// Error implements error.
func (e *DeadLettersError) Error() string { return e.Text }

// Unwrap implements errors.Is and errors.As.
func (e *DeadLettersError) Unwrap() []error { return []error{e.Kind, e.Cause} }
