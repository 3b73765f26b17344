// Package dedup says how a consumer remembers which messages were handled; its subpackages do it.
package dedup

import "context"

// Status is what a store knows of a message.
type Status uint8

// The statuses.
const (
	// New: the store has not seen it, and the caller has it now. It must call Done or Release.
	New Status = iota + 1
	// Busy: somebody else has it now.
	Busy
	// Done: it was handled to its end.
	Done
)

// String gives the status's name.
func (s Status) String() string {
	switch s {
	case New:
		return "new"
	case Busy:
		return "busy"
	case Done:
		return "done"
	}
	return "unknown"
}

// Store remembers messages by a key of 1 to 1,000 bytes, compared byte by byte. Its methods may be called concurrently
// and return with an error when their context ends or the store cannot be asked. How long it remembers is the
// implementation's to document: a copy that comes later is handled again.
//
// A process that dies between Begin and Done leaves the message Busy. The store ends that by itself after a time that it
// documents, so that the message can be handled again: at least once is kept, at the price that the effect may have
// happened already.
type Store interface {
	// Begin asks whether the message is to be handled, and if it is New, takes it. Of several who ask at once, exactly
	// one gets New.
	Begin(ctx context.Context, key string) (Status, error)
	// Done notes that the message was handled. It holds whoever has taken it meanwhile.
	Done(ctx context.Context, key string) error
	// Release gives back a message that this store took and that was not handled. It does nothing when it was not taken,
	// when another instance has it, or when it is Done.
	Release(ctx context.Context, key string) error
}
