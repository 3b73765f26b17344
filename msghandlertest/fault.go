package msghandlertest

import (
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
)

// Call is a call of a producer about one message, by itself or in a batch.
type Call string

// The calls of producers.
const (
	SendHalfMessage Call = "SendHalfMessage"
	Submit          Call = "Submit"
	Rollback        Call = "Rollback"
	// publish is what the coordinator does at its broker.
	publish Call = "publish"
)

type effect int

const (
	refuse effect = iota + 1
	loseAnswer
	swallow
	brokerRefuses
	brokerReturns
	brokerRepeats
)

// Fault is a failure on demand. It happens once, to the next message that fits, unless Times or Always says otherwise.
// The functions of this package make faults, such as Refuse; the methods of Fault return changed copies.
type Fault struct {
	call   Call
	effect effect
	code   codes.Code
	id     string
	// left is how often the fault still happens; negative: always.
	left int
}

// Refuse has the coordinator refuse the call with a code, and do nothing. The SDK repeats a call after UNAVAILABLE,
// RESOURCE_EXHAUSTED and other codes that may pass (docs/other-languages.md), so give such a fault Always to see it
// give up.
func Refuse(call Call, code codes.Code) Fault {
	return Fault{call: call, effect: refuse, code: code, left: 1}
}

// LoseAnswer has the coordinator do the call, and its answer is lost: the caller gets UNAVAILABLE, as when the
// connection breaks. In a batch the answers about all its messages are lost.
func LoseAnswer(call Call) Fault { return Fault{call: call, effect: loseAnswer, left: 1} }

// Swallow keeps the call from the coordinator, and answers as if the coordinator had taken it up. Swallow(Submit)
// leaves the message to the Confirm path, as if the producer had died before its Submit.
func Swallow(call Call) Fault { return Fault{call: call, effect: swallow, left: 1} }

// BrokerRefuses has the broker refuse a message (a nack): a used attempt. After three the message is DEAD.
func BrokerRefuses() Fault { return Fault{call: publish, effect: brokerRefuses, left: 1} }

// BrokerReturns has the broker return a message as unroutable: a used attempt. After three the message is DEAD.
func BrokerReturns() Fault { return Fault{call: publish, effect: brokerReturns, left: 1} }

// BrokerRepeats has the broker take a message and lose its acknowledgement with the connection. The coordinator
// publishes the message again, and the copy is flagged: its Attempt is 2.
func BrokerRepeats() Fault { return Fault{call: publish, effect: brokerRepeats, left: 1} }

// For limits the fault to the message of an id.
func (f Fault) For(id string) Fault { f.id = id; return f }

// Times has the fault happen to the next n messages that fit.
func (f Fault) Times(n int) Fault { f.left = n; return f }

// Always has the fault happen to every message that fits, until Heal.
func (f Fault) Always() Fault { f.left = -1; return f }

// Inject adds faults. Where several fit a message, the one that was added first happens.
func (c *Coordinator) Inject(all ...Fault) { c.faults.add(all) }

// Heal removes all faults that have not happened yet.
func (c *Coordinator) Heal() { c.faults.clear() }

// faults are the faults to come.
type faults struct {
	mu  sync.Mutex
	all []Fault
}

func (f *faults) add(all []Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, all...)
}

func (f *faults) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = nil
}

// take returns the fault that happens to a call about a message; its effect is 0 where none does.
func (f *faults) take(call Call, id string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.all, func(one Fault) bool {
		return one.call == call && one.left != 0 && (one.id == "" || one.id == id)
	})
	if i < 0 {
		return Fault{}
	}
	taken := f.all[i]
	if f.all[i].left > 0 {
		f.all[i].left--
	}
	return taken
}
