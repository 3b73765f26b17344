// Package marker defines business markers and the contract of their stores.
//
// A marker is the producer's own note, kept under a message's id, that the local transaction of this message
// committed (or never will). With markers a producer can answer the coordinator's Confirm after a Submit was lost.
// Package markertest holds the contract as a test suite; run the suite on a store of your own.
package marker

import (
	"context"
	"errors"
	"fmt"
)

// Verdict is the content of a marker about one local transaction. The zero Verdict is treated as Unknown.
type Verdict uint8

// The verdicts; their numbers are the same as in msghandler.v1.Verdict.
const (
	// Unknown: nothing is known. Absence is never a verdict: a transaction that has left no marker may still commit.
	Unknown Verdict = 1
	// Committed: the local transaction committed, so the message is to be published.
	Committed Verdict = 2
	// RolledBack: the local transaction did not commit and never will, so the message is to be removed.
	RolledBack Verdict = 3
	// Unavailable: the lookup was not possible, for a reason that has nothing to do with this message. Unlike Unknown,
	// Unavailable uses up none of the coordinator's questions. Unavailable is an answer only and is never marked.
	Unavailable Verdict = 4
)

// String gives the verdict's name.
func (v Verdict) String() string {
	switch v {
	case 0, Unknown:
		return "unknown"
	case Committed:
		return "committed"
	case RolledBack:
		return "rolled_back"
	case Unavailable:
		return "unavailable"
	}
	return fmt.Sprintf("verdict(%d)", uint8(v))
}

// Definite says whether the verdict decides a message's fate.
func (v Verdict) Definite() bool { return v == Committed || v == RolledBack }

// Store keeps the markers of one producer. Its methods are called concurrently, with up to 1,000 ids at a time, and
// must return when their context ends. Calls may be repeated with the same ids at any time. An error means that
// nothing was learned, though a Put or Delete may have happened; the caller retries. The SDK never closes a store.
type Store interface {
	// Put marks ids with a definite verdict and returns the resulting verdict of each id. The first verdict of an id
	// wins: Put never replaces a verdict, in any order of concurrent calls. An id that is missing in the result could
	// not be marked; the others were.
	Put(ctx context.Context, ids []string, v Verdict) (map[string]Verdict, error)
	// Lookup returns the verdicts of ids. An id that is missing in the result is Unknown; an id whose lookup was not
	// possible may be Unavailable. An unreadable marker does not affect other ids. final is set on the coordinator's
	// last question: a store that DecidesFinal then answers every id, and makes sure that the answer stays true.
	Lookup(ctx context.Context, ids []string, final bool) (map[string]Verdict, error)
	// Delete removes the Committed markers of messages whose verdict the coordinator has stored. A RolledBack marker
	// stays until the store's retention ends: a second run of the id, here or in another replica, may still commit, and
	// learns only from the verdict of Put that its message is gone. Ids without a marker are no error.
	Delete(ctx context.Context, ids []string) error
	// Identity reads the identity of the store: at most 16 bytes of [A-Za-z0-9._-], made once and kept with the markers.
	// Everyone who sees the same markers reads the same identity. The coordinator counts no verdict of a store with
	// another identity. Empty: the store has none, and the verdict of any store counts.
	Identity(ctx context.Context) (string, error)
	// Capabilities says what the store can do. The SDK calls Capabilities once.
	Capabilities() Capabilities
}

// Withdrawer is a Store that can take back a RolledBack marker. The SDK withdraws a marker that proved wrong: the run
// that left the marker has failed, but the coordinator has a COMMITTED verdict of an earlier run. A store that keeps
// its Committed markers after Delete, as SQL does, never holds such a marker and needs no Withdraw.
type Withdrawer interface {
	// Withdraw removes the RolledBack markers of ids; Committed markers stay. Ids without a marker are no error. After
	// an error the markers may still be there; the caller does not retry, and the markers expire.
	Withdraw(ctx context.Context, ids []string) error
}

// ErrOtherStore is the error of a bound store whose markers have another identity.
var ErrOtherStore = errors.New("another marker store answers at the address of this one")

// Binder is a Store that can have another database behind its address, such as after a change of DNS. Where a Store is
// no Binder, the SDK reads the identity before it answers the coordinator.
type Binder interface {
	// Bound returns a Store of the same markers whose Put, Lookup and Delete return ErrOtherStore, and change nothing,
	// unless the markers that they read or change have the identity.
	Bound(identity string) Store
}

// Capabilities lists the differences between stores, so that users can choose and tests can check them.
type Capabilities struct {
	// SurvivesRestart: markers are still there after the producer's process has died. The messages of another store name
	// no store: after a restart no store could answer for them.
	SurvivesRestart bool
	// Shared: all replicas of a producer see the same markers. A producer whose store is not Shared has one replica.
	Shared bool
	// DecidesFinal: the store can make a running transaction fail, and so answers a final question about an id without
	// a marker with RolledBack. Otherwise the answer stays Unknown, and the message ends ABANDONED.
	DecidesFinal bool
	// InTransaction: the business itself leaves the marker, in its own transaction; final answers are true for such a
	// business only. The SDK looks for the marker after the business. If the marker is missing, the SDK puts the marker
	// and returns producer.ErrUnmarked.
	InTransaction bool
}
