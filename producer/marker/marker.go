// Package marker says what a business marker is and what a store of them must promise.
//
// A marker is the producer's own note, kept under a message's id, that the local transaction of that message committed
// (or that it never will). It is what lets a producer answer the coordinator's Confirm after a Submit was lost. Package
// markertest holds the promise as a test suite; run it on a store of your own.
package marker

import (
	"context"
	"fmt"
)

// Verdict is what a marker says about one local transaction. The zero Verdict is treated as Unknown.
type Verdict uint8

// The verdicts; the values are those of msghandler.v1.Verdict.
const (
	// Unknown: nothing is known. Absence is never a verdict: a transaction that has left no marker may still commit.
	Unknown Verdict = 1
	// Committed: the local transaction committed, so the message is to be published.
	Committed Verdict = 2
	// RolledBack: the local transaction did not commit and never will, so the message is to be removed.
	RolledBack Verdict = 3
	// Unavailable: nobody could look, for a reason that says nothing of this message. Unlike Unknown it uses up none of
	// the coordinator's questions. It is an answer only and is never marked.
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
// must return when their context ends. They may be called again with the same ids at any time. An error means that
// nothing was learned, though a Put or Delete may have happened; the caller tries again. The SDK never closes a store.
type Store interface {
	// Put marks ids with a definite verdict and returns, for each of them, the verdict that now stands. The first
	// verdict stands: Put never replaces one, whatever the order of concurrent calls. An id that it leaves out could
	// not be marked; the others were.
	Put(ctx context.Context, ids []string, v Verdict) (map[string]Verdict, error)
	// Lookup returns the verdicts of those ids that have one; what it leaves out is Unknown, and what it could not look
	// at may be Unavailable. A marker that cannot be read spoils no other. final says that the coordinator asks for the
	// last time: a store that DecidesFinal then answers every id, and makes sure that the answer stays true.
	Lookup(ctx context.Context, ids []string, final bool) (map[string]Verdict, error)
	// Delete forgets the Committed markers of messages whose fate the coordinator has stored. A RolledBack marker stands
	// until the store's retention ends: a second run of the id, here or in another replica, may still commit, and only
	// the verdict that Put returns can tell that run that its message is gone. Ids without a marker are no error.
	Delete(ctx context.Context, ids []string) error
	// Capabilities says what the store can do. It is asked once.
	Capabilities() Capabilities
}

// Withdrawer is a Store that can take back a RolledBack marker. The SDK uses it for a marker that proved wrong: the run
// that left it has failed, but the coordinator has a COMMITTED verdict of an earlier run. A store that keeps its
// Committed markers after Delete, as SQL does, meets no such marker and need not be one.
type Withdrawer interface {
	// Withdraw removes the RolledBack markers of ids; Committed markers stay. Ids without a marker are no error. An error
	// means that the markers may still be there; the caller does not try again, and they expire.
	Withdraw(ctx context.Context, ids []string) error
}

// Capabilities names what differs between stores, so that users can choose and tests can hold them to it.
type Capabilities struct {
	// SurvivesRestart: markers are still there after the producer's process has died.
	SurvivesRestart bool
	// Shared: all replicas of a producer see the same markers. Without it a producer has one replica.
	Shared bool
	// DecidesFinal: the store can make a transaction that is still running fail, so it answers a final question about
	// an id without a marker with RolledBack. Without it the answer stays Unknown, and the message ends ABANDONED.
	DecidesFinal bool
	// InTransaction: the marker is the business's own to leave, in the transaction that it speaks of; its last answers
	// are true for such a business alone. The SDK then looks for it after the business, and where there is none it makes
	// up for it with Put and says so.
	InTransaction bool
}
