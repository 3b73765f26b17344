// Package publish is what the publishers of all brokers have in common. The coordinator and the SDKs' outbox publish
// through it, and it knows no broker.
//
//   - port.go: what a publisher promises: Publisher, and the outcomes of a message.
//   - life.go: the life of a publisher: its connection, whether the broker takes messages, and its end.
//   - call.go: one batch on its way; outcomes.go: its outcomes, handed over as they come.
//   - routes.go: which exchanges the broker accepts messages for; stalledroutes.go: which routes it leaves without an
//     answer.
package publish

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

const (
	// rejectionTTL is how long a rejected exchange is not tried again. The pause spares the broker a closed channel for
	// each of many messages, and is shorter than any sensible send.backoff.
	rejectionTTL = time.Second
	// isolationTTL is how long the table remembers a message that was in flight when the broker closed a channel.
	isolationTTL = 10 * time.Minute
	// maxExchanges bounds the exchanges in the table; at the limit the table forgets exchanges without useful state.
	maxExchanges = 1000
)

// State says how a message may be sent now.
type State uint8

const (
	// Shared means on a channel with other messages.
	Shared State = iota + 1
	// Isolated means on a channel without other messages: the message was in flight when the broker closed a channel.
	Isolated
	// Probe means on a channel without other messages, as the first message to its exchange. The caller must call
	// EndProbe.
	Probe
	// Pending means not before the probe of the exchange has ended. Then the caller asks again.
	Pending
	// Rejected means not now, since the broker has just rejected a message to the exchange.
	Rejected
	// Stalled means not now: the queue does not confirm, and another message probes the route or will after a pause.
	Stalled
)

// Decision is the answer of the table about one message.
type Decision struct {
	State State
	// ProbeEnded is closed when a Pending message may ask again.
	ProbeEnded <-chan struct{}
	// Err is why a message is Rejected or Stalled.
	Err error
}

// Routes is the table of exchange states and stalled routes of one broker. It is safe for concurrent use.
//
// A message that the broker rejects (no such exchange, no permission, body too large) closes the channel, and the fate
// of every other message in flight there is unknown. So the first message to an exchange is a probe on a channel of its
// own, and other messages wait for the answer. When the broker closes a shared channel later, each message in flight is
// isolated the next time: isolation finds the rejected message without reading the error text.
type Routes struct {
	config RoutesConfig
	// anyStalled spares messages the lock while no route is stalled.
	anyStalled atomic.Bool

	mu        sync.Mutex
	exchanges map[string]*exchange
	isolated  map[Name]time.Time
	stalled   stalledRoutes
}

// exchange is the state of one exchange. The zero value is an unknown exchange.
type exchange struct {
	// accepted: the broker has answered a message to the exchange.
	accepted bool
	// rejection is why the broker rejected a message to the exchange; the error counts until rejectedUntil.
	rejection     error
	rejectedUntil time.Time
	// probe is closed when the probe has ended; nil while no probe is in flight.
	probe chan struct{}
}

// RoutesConfig says what the routes of a kind of brokers are. The zero value is for a broker whose exchanges route by
// key and headers.
type RoutesConfig struct {
	// ByExchange: an exchange answers for all its routing keys and headers, or for none.
	ByExchange bool
	// Unprobed: no message probes its exchange, as a rejected message harms no other.
	Unprobed bool
	// Pauses are the waits before each probe of a stalled route; without pauses a probe follows the last one at once.
	// With pauses headers make no difference, as each probe holds a batch of its caller.
	Pauses backoff.Steps
}

// NewRoutes returns an empty table.
func NewRoutes(config RoutesConfig) *Routes {
	r := &Routes{config: config, stalled: stalledRoutes{config: config}}
	r.Reset()
	return r
}

// Reset forgets everything, as after a new connection: another node may know other exchanges and permissions.
func (r *Routes) Reset() {
	r.ResetStalled()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.exchanges {
		if e.probe != nil {
			close(e.probe)
		}
	}
	r.exchanges = make(map[string]*exchange)
	r.isolated = make(map[Name]time.Time)
}

// Decide says how a message may be sent.
func (r *Routes) Decide(m *Message) Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.config.Unprobed {
		return r.stalled.decide(m, Shared)
	}
	e := r.exchange(m.Exchange)
	_, isolated := r.isolated[m.Name]
	switch {
	case e.rejected() != nil:
		return Decision{State: Rejected, Err: e.rejection}
	case isolated:
		return r.stalled.decide(m, Isolated)
	case e.accepted:
		return r.stalled.decide(m, Shared)
	case e.probe != nil:
		return Decision{State: Pending, ProbeEnded: e.probe}
	default:
		e.probe = make(chan struct{})
		return Decision{State: Probe}
	}
}

// Rejection is why the broker has just rejected the exchange; nil otherwise.
func (r *Routes) Rejection(name string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.exchanges[name]; e != nil {
		return e.rejected()
	}
	return nil
}

func (e *exchange) rejected() error {
	if e.rejection == nil || !time.Now().Before(e.rejectedUntil) {
		return nil
	}
	return e.rejection
}

// Accept records that the broker accepted a message to the exchange.
func (r *Routes) Accept(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.exchange(name)
	e.accepted, e.rejection = true, nil
}

// Presume lets other messages follow a probe that has no answer for a while: the broker rejects a message at once, and
// takes its time only for a queue that does not confirm.
func (r *Routes) Presume(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.exchange(name)
	e.accepted = true
	e.endProbe()
}

// Reject records why the broker rejected a message for its exchange.
func (r *Routes) Reject(name string, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.exchange(name)
	e.accepted, e.rejection, e.rejectedUntil = false, why, time.Now().Add(rejectionTTL)
}

// EndProbe lets pending messages to the exchange ask again.
func (r *Routes) EndProbe(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.exchanges[name]; e != nil {
		e.endProbe()
	}
}

func (e *exchange) endProbe() {
	if e.probe != nil {
		close(e.probe)
		e.probe = nil
	}
}

// Isolate records messages that were in flight on a channel when the broker closed the channel. Headers are not needed.
func (r *Routes) Isolate(messages []Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for id, since := range r.isolated {
		if now.Sub(since) > isolationTTL {
			delete(r.isolated, id)
		}
	}
	for i := range messages {
		r.isolated[messages[i].Name] = now
		r.exchange(messages[i].Exchange).accepted = false
	}
}

// EndIsolation lets a message be sent with other messages again, since the broker has answered the message.
func (r *Routes) EndIsolation(m *Message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.isolated, m.Name)
}

// exchange finds or makes an entry; r.mu is held.
func (r *Routes) exchange(name string) *exchange {
	e := r.exchanges[name]
	if e != nil {
		return e
	}
	if len(r.exchanges) >= maxExchanges {
		r.prune()
	}
	e = &exchange{}
	r.exchanges[name] = e
	return e
}

// prune forgets exchanges without useful state, and all exchanges if the first step frees no room; r.mu is held.
func (r *Routes) prune() {
	for name, e := range r.exchanges {
		if e.probe == nil && !e.accepted && e.rejected() == nil {
			delete(r.exchanges, name)
		}
	}
	if len(r.exchanges) < maxExchanges {
		return
	}
	for name, e := range r.exchanges {
		if e.probe == nil {
			delete(r.exchanges, name)
		}
	}
}
