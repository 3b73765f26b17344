package checks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/wire"
)

// Leases judges who held the lease of each message, over all coordinators: one register for each message, whose
// operations are the claims, the settlements with their tokens, and the moves without a lease. A history is right when
// some order of the operations that overlap explains each reply. The server applies and times each operation, so an
// operation whose reply got lost counts as well.
type Leases struct {
	mu         sync.Mutex
	operations map[string][]porcupine.Operation
}

// NewLeases is without a history.
func NewLeases() *Leases { return &Leases{operations: map[string][]porcupine.Operation{}} }

// See takes a call of a script with its reply.
func (l *Leases) See(c wire.ScriptCall) {
	steps := stepsOf(c)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range steps {
		s.replied = c.At
		if s.kind != seen {
			l.operations[s.key] = append(l.operations[s.key], porcupine.Operation{
				Input: s, Call: c.Called, Return: c.Answered,
			})
		}
	}
}

// Forget notes that Redis has lost writes: each message may stand anywhere. The loss overlaps all calls of its time, by
// the server's clock: the loss may come before or after these.
func (l *Leases) Forget(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, latest := int64(0), int64(0)
	for _, operations := range l.operations {
		first, last := overlap(operations, at)
		before, latest = max(before, first), max(latest, last)
	}
	for key := range l.operations {
		l.forget(key, "Redis has lost writes", before, latest)
	}
}

// Lose notes that the record of one message was removed.
func (l *Leases) Lose(key string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before, latest := overlap(l.operations[key], at)
	l.forget(key, "the record was removed", before, latest)
}

func (l *Leases) forget(key, why string, before, latest int64) {
	l.operations[key] = append(l.operations[key], porcupine.Operation{
		Input: step{key: key, kind: unknown, answer: why}, Call: before, Return: latest + 1,
	})
}

// overlap is when the last operation before a time of the server's clock was answered, and when the last of all was.
func overlap(operations []porcupine.Operation, at time.Time) (before, latest int64) {
	for _, o := range operations {
		latest = max(latest, o.Return)
		if s, _ := o.Input.(step); s.replied.Before(at) {
			before = max(before, o.Return)
		}
	}
	return before, latest
}

// tick is how exactly the time of a reply without a time is known, in milliseconds: a stepped clock of a world goes on
// in such ticks.
const tick = 20

// patience bounds the search for one message.
const patience = 10 * time.Second

// Check lists the messages whose history no order explains.
func (l *Leases) Check() (wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(l.operations)) {
		switch porcupine.CheckOperationsTimeout(register, l.operations[key], patience) {
		case porcupine.Illegal:
			wrong = append(wrong, fmt.Sprintf("%s: its leases contradict each other:\n%s", key, story(l.operations[key])))
		case porcupine.Unknown:
			wrong = append(wrong, fmt.Sprintf("%s: no order was found in %v, and none excluded:\n%s", key, patience,
				story(l.operations[key])))
		}
	}
	return wrong
}

// lease is the state of a register.
type lease struct {
	// anything says that the register knows nothing.
	anything bool
	state    halfmsg.State
	owner    string
	until    int64
}

// holds reports whether the message has an owner at a time.
func (l lease) holds(at int64) bool { return l.owner != "" && l.until > at }

// register is the model of a lease.
var register = porcupine.Model{
	Init: func() any { return lease{} },
	Step: func(state, input, _ any) (bool, any) {
		before, _ := state.(lease)
		s, _ := input.(step)
		legal, after := before.next(s)
		return legal || before.anything, after
	},
}

// next says whether a step may follow, and what is then.
func (l lease) next(s step) (legal bool, after lease) {
	held := lease{state: s.state, owner: s.token, until: s.at + s.hold}
	switch s.kind {
	case begun:
		// An unfinished message is stored anew only where the store says that its record was lost.
		fresh := l.state == halfmsg.None || l.state.Final()
		return fresh || s.answer == kindName(replyRepaired), lease{state: s.state}
	case claimed:
		// A claim of a message without an owner, in the state that it was in, or that a Submit wakes.
		return !l.holds(s.at) && (l.state == s.state || s.eventKnown && leads(l.state, s)), held
	case taken:
		return leads(l.state, s), held
	case freed:
		return !l.holds(s.at) && l.state == s.state, lease{state: s.state}
	case settled:
		return l.settled(s)
	case refused:
		return l.owner != s.token || l.until <= s.at+tick, l
	case moved:
		return l.moved(s)
	case unknown:
		return true, lease{anything: true}
	}
	return true, l
}

// settled is the step of the lease holder. The same step made again changes nothing, also under a later owner.
func (l lease) settled(s step) (legal bool, after lease) {
	if l.owner != s.token || l.until <= s.at-tick || !s.eventKnown || !leads(l.state, s) {
		repeated := s.state == l.state && slices.ContainsFunc(halfmsg.Moves(), func(m halfmsg.Move) bool {
			return m.Event == s.event && m.To == l.state
		})
		if l.anything {
			return true, lease{anything: true}
		}
		return repeated, l
	}
	after = lease{state: s.state, owner: s.token, until: s.at + s.hold}
	if s.hold == 0 || !s.state.HasLoop() {
		after.owner = ""
	}
	return true, after
}

// moved is a step without a lease. The owner keeps the lease where the state stays.
func (l lease) moved(s step) (legal bool, after lease) {
	after = lease{state: s.state}
	if l.anything && s.state.HasLoop() {
		return true, l
	}
	if l.state == s.state && l.holds(s.at) {
		after = l
	}
	return leads(l.state, s) || l.state == s.state, after
}

// leads says whether the event of a step leads from a state to that of the step, where the state is known: directly, or
// with a retry that came while the owner worked.
func leads(from halfmsg.State, s step) bool {
	to, legal := halfmsg.Next(from, s.event)
	if !s.eventKnown || !legal {
		return !s.eventKnown
	}
	after, retried := halfmsg.Next(to, halfmsg.EventRetry)
	return to == s.state || retried && after == s.state
}

// story lists operations in their order.
func story(operations []porcupine.Operation) string {
	var out strings.Builder
	for _, o := range operations {
		s, _ := o.Input.(step)
		fmt.Fprintf(&out, "  %d..%d at %d: %s\n", o.Call, o.Return, s.at, s)
	}
	return out.String()
}

var stepNames = [...]string{
	"seen", "claimed", "taken", "freed", "settled", "refused", "moved", "begun", "unknown",
}

// String describes a step.
func (s step) String() string {
	text := fmt.Sprintf("%s as %v (%s)", stepNames[s.kind], s.state, s.answer)
	if s.eventKnown {
		text += fmt.Sprintf(", event %v", s.event)
	}
	if s.token != "" {
		text += fmt.Sprintf(", token %s for %d ms", s.token, s.hold)
	}
	return text
}
