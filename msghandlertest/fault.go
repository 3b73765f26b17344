package msghandlertest

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/grpc/codes"
)

// Call is a call of a producer about one message, by itself or in a batch.
type Call int

// The calls of producers.
const (
	SendHalfMessage Call = iota + 1
	Submit
	Rollback
	// publish is what the coordinator does at its broker.
	publish
)

// String is the name of the call.
func (c Call) String() string {
	return [...]string{"no call", "SendHalfMessage", "Submit", "Rollback", "publish"}[c]
}

type effect int

const (
	refuse effect = iota + 1
	ignore
	loseResponse
	brokerNacks
	brokerReturns
	brokerLosesAck
)

// String is the name of the function that makes the fault.
func (e effect) String() string {
	return [...]string{
		"no fault", "Refuse", "Ignore", "LoseResponse", "BrokerNacks", "BrokerReturns", "BrokerLosesAck",
	}[e]
}

// Fault is a failure on demand. It happens once, to the next message that fits, unless Times or Always says otherwise.
// The functions of this package make faults, such as Refuse; the methods of Fault return changed copies. A fault that
// has never happened when the test ends fails the test, unless the fault has Always.
type Fault struct {
	call   Call
	effect effect
	code   codes.Code
	id     string
	// left is how often the fault still happens; negative: always.
	left int
	// happened says that the fault has happened at least once.
	happened bool
}

// String describes the fault as a test writes it.
func (f Fault) String() string {
	text := f.effect.String() + "()"
	if f.call != publish {
		text = fmt.Sprintf("%v(%v)", f.effect, f.call)
	}
	if f.id != "" {
		text += fmt.Sprintf(".For(%q)", f.id)
	}
	return text
}

// Refuse has the coordinator refuse the call with a code, and do nothing. The SDK repeats a call after UNAVAILABLE,
// RESOURCE_EXHAUSTED and other codes that may pass (docs/reference/languages-contract.md), so give such a fault Always
// to see the SDK give up. OK is no refusal: Refuse panics.
func Refuse(call Call, code codes.Code) Fault {
	if code == codes.OK {
		panic("msghandlertest: Refuse with codes.OK; to answer OK and do nothing use Ignore")
	}
	return Fault{call: call, effect: refuse, code: code, left: 1}
}

// LoseResponse has the coordinator do the call, and its answer is lost: the caller gets UNAVAILABLE, as when the
// connection breaks. In a batch the answers about all its messages are lost.
func LoseResponse(call Call) Fault { return Fault{call: call, effect: loseResponse, left: 1} }

// Ignore keeps the call from the coordinator, and answers as if the coordinator had taken it up. Ignore(Submit)
// leaves the message to the Confirm path, as if the producer had died before its Submit.
func Ignore(call Call) Fault { return Fault{call: call, effect: ignore, left: 1} }

// BrokerNacks has the broker refuse a message (a nack): a used attempt. After three the message is DEAD.
func BrokerNacks() Fault { return Fault{call: publish, effect: brokerNacks, left: 1} }

// BrokerReturns has the broker return a message as unroutable: a used attempt. After three the message is DEAD.
func BrokerReturns() Fault { return Fault{call: publish, effect: brokerReturns, left: 1} }

// BrokerLosesAck has the broker take a message and lose its acknowledgement with the connection. The coordinator
// publishes the message again, and the copy is flagged: its Attempt is 2.
func BrokerLosesAck() Fault { return Fault{call: publish, effect: brokerLosesAck, left: 1} }

// For limits the fault to the message of an id.
func (f Fault) For(id string) Fault { f.id = id; return f }

// Times has the fault happen to the next n messages that fit.
func (f Fault) Times(n int) Fault { f.left = n; return f }

// Always has the fault happen to every message that fits, until ClearFaults.
func (f Fault) Always() Fault { f.left = -1; return f }

// Inject adds faults. Where several fit a message, the one that was added first happens.
func (c *Coordinator) Inject(all ...Fault) { c.faults.add(all) }

// ClearFaults removes all faults that have not happened yet.
func (c *Coordinator) ClearFaults() { c.faults.clear() }

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

// takeFault returns the fault that happens to a call about a message; its effect is 0 where none does.
func (f *faults) takeFault(call Call, id string) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.all, func(one Fault) bool {
		return one.call == call && one.left != 0 && (one.id == "" || one.id == id)
	})
	if i < 0 {
		return Fault{}
	}
	taken := f.all[i]
	f.all[i].happened = true
	if f.all[i].left > 0 {
		f.all[i].left--
	}
	return taken
}

// missed are the faults that were to happen a number of times, and never have.
func (f *faults) missed() []Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.all), func(one Fault) bool { return one.happened || one.left <= 0 })
}
