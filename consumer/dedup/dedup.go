// Package dedup is the contract of stores that remember handled messages for a consumer; its subpackages are stores.
package dedup

import "context"

// Status is the state of a message in a store.
type Status uint8

// The statuses.
const (
	// New: the store has not seen the message, and the caller holds the message now. The caller must call Done or
	// Release.
	New Status = iota + 1
	// Busy: another caller holds the message now.
	Busy
	// Done: the message was handled.
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

// Store remembers messages by a key of 1 to 1,000 bytes, compared byte by byte. Its methods may be called
// concurrently and return an error when their context ends or the store is unreachable. Each implementation documents
// how long a message is remembered: a later copy is handled again.
//
// A process that dies between Begin and Done leaves the message Busy. Each store ends this state after a documented
// time, so that the message can be handled again: delivery stays at least once, but the effect may have happened
// already.
type Store interface {
	// Begin takes the message if its status is New. Of several concurrent calls, exactly one gets New.
	Begin(ctx context.Context, key string) (Status, error)
	// Done marks the message as handled, even if another caller holds the message meanwhile.
	Done(ctx context.Context, key string) error
	// Release gives back a message that this store holds and that was not handled. Release does nothing for a message
	// that is not held, is held by another instance, or is Done.
	Release(ctx context.Context, key string) error
}
