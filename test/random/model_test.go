// Package random runs random sequences of all events of messages against the real store and both loops, and compares
// them with a model after every step.
//
// Several instances share one store in miniredis. Every effect of an instance (a Confirm, a Settle, a DeleteBusiness,
// a Publish) stops at a gate until the sequence lets the effect go on with an answer. So any two effects of any two
// instances can come in any order, with any time between them, and an instance can die before each effect.
package random

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// truth is the outcome of one local transaction in the producer's database.
type truth uint8

const (
	running truth = iota
	committed
	rolledBack
)

// item is the model's knowledge of one message.
type item struct {
	// content is the content of the first SendHalfMessage, once there was a SendHalfMessage.
	content halfmsg.Message
	sent    bool
	// place is the place in the order in which messages were stored.
	place int
	truth truth
	// saidCommitted and saidRolledBack are the producer's answers so far.
	saidCommitted, saidRolledBack bool

	state     halfmsg.State
	token     halfmsg.Token
	leaseEnd  int64 // milliseconds, the store's clock
	confirms  int
	publishes int
	copies    int
	deletes   int

	// fateStored and ackStored say that the store has the verdict, and the acknowledgement.
	fateStored, ackStored bool
	acked, discarded      bool
	// markerGone says that the producer has deleted its marker, and refusals counts the failed deletions.
	markerGone bool
	refusals   int
	// attempts are the attempts of the copies that may have reached the broker.
	attempts map[int]bool
}

// model judges the store and the loops. Its methods are called with world.mu held.
type model struct {
	items map[halfmsg.Name]*item
	now   int64
	// stored counts messages.
	stored int
	// made are the moves that were made so far, in all sequences of the lab.
	made map[halfmsg.Move]int
	// wrong is the first violation.
	wrong string
}

// open says whether a message is in its chain: it is unfinished, and the broker has not acknowledged it.
func (it *item) open() bool {
	kept := it.state != halfmsg.None && !it.state.Final()
	return it.content.OrderingKey != "" && kept && it.state != halfmsg.Acknowledged
}

// before lists the messages before one in the order of its key.
func (m *model) before(name halfmsg.Name) (all []*item) {
	it := m.items[name]
	for other, its := range m.items {
		if it.content.OrderingKey != "" && other.Producer == name.Producer && its.sent && its.place < it.place &&
			its.content.OrderingKey == it.content.OrderingKey {
			all = append(all, its)
		}
	}
	return all
}

// behind says whether a message stands behind another one of its chain.
func (m *model) behind(name halfmsg.Name) bool {
	return slices.ContainsFunc(m.before(name), (*item).open)
}

func (m *model) note(from halfmsg.State, event halfmsg.Event) {
	to, _ := halfmsg.Next(from, event)
	m.made[halfmsg.Move{From: from, Event: event, To: to}]++
}

func (m *model) failf(format string, args ...any) {
	if m.wrong == "" {
		m.wrong = fmt.Sprintf(format, args...)
	}
}

// has says whether a message is in that state.
func (m *model) has(state halfmsg.State) bool {
	for _, it := range m.items {
		if it.state == state {
			return true
		}
	}
	return false
}

// created judges the answer to a SendHalfMessage.
func (m *model) created(message *halfmsg.Message, r halfmsg.Result) {
	it := m.items[message.Name]
	switch {
	case !it.sent:
		m.note(halfmsg.None, halfmsg.EventSend)
		m.stored++
		it.sent, it.content, it.state, it.place = true, *message, halfmsg.Pending, m.stored
		if r.Err != nil || r.State != halfmsg.Pending {
			m.failf("%s: a new message is answered with %v, %v", message.Name, r.State, r.Err)
		}
	case it.content.Digest() != message.Digest():
		if !errors.Is(r.Err, halfmsg.ErrExists) {
			m.failf("%s: other content is answered with %v, %v", message.Name, r.State, r.Err)
		}
	case r.Err != nil || r.State != it.state:
		m.failf("%s: the same content is answered with %v, %v in state %v", message.Name, r.State, r.Err, it.state)
	}
}

// submitted judges the answer to a Submit.
func (m *model) submitted(name halfmsg.Name, r halfmsg.Submitted, lease int64) {
	it := m.items[name]
	m.note(it.state, halfmsg.EventSubmit)
	switch it.state {
	case halfmsg.None:
		m.expect(name, "submit", r.Result, halfmsg.None, halfmsg.ErrNotFound)
	case halfmsg.RolledBack:
		m.expect(name, "submit", r.Result, it.state, halfmsg.ErrIllegal)
	case halfmsg.Abandoned:
		it.state, it.confirms, it.publishes = halfmsg.Pending, 0, 0
		fallthrough
	default:
		m.expect(name, "submit", r.Result, it.state, nil)
	}
	held := it.state == halfmsg.Pending && it.token != "" && it.leaseEnd > m.now
	if wants := it.state == halfmsg.Pending && !held; wants != (r.Claim != nil) {
		m.failf("%s: claimed by a submit %v, want %v", name, r.Claim != nil, wants)
	}
	if r.Claim != nil {
		m.claimed(r.Claim, lease)
	}
}

// trusted judges the answer to a Submit that is the verdict: the message is committed from now on, with or without a
// lease holder.
func (m *model) trusted(name halfmsg.Name, r halfmsg.Submitted, lease int64) {
	it := m.items[name]
	to, moves := halfmsg.Next(it.state, halfmsg.EventSubmitTrusted)
	switch it.state {
	case halfmsg.None:
		m.expect(name, "trusted submit", r.Result, halfmsg.None, halfmsg.ErrNotFound)
	case halfmsg.RolledBack:
		m.expect(name, "trusted submit", r.Result, it.state, halfmsg.ErrIllegal)
	default:
		m.expect(name, "trusted submit", r.Result, to, nil)
	}
	if moves != (r.Claim != nil) {
		m.failf("%s: a trusted submit has made it sendable %v, want %v", name, r.Claim != nil, moves)
	}
	if !moves || r.Claim == nil {
		return
	}
	if name.Producer != trusted {
		m.failf("%s: COMMITTED is stored without a source", name)
	}
	m.note(it.state, halfmsg.EventSubmitTrusted)
	if it.state == halfmsg.Abandoned {
		it.confirms, it.publishes = 0, 0
	}
	it.state, it.saidCommitted, it.fateStored, it.token = to, true, true, ""
	if it.content.Delay == 0 {
		m.claimed(r.Claim, lease)
	} else if r.Claim.Token != "" {
		m.failf("%s: claimed by a trusted submit before its delay is over", name)
	}
}

func (m *model) expect(name halfmsg.Name, what string, r halfmsg.Result, state halfmsg.State, err error) {
	if r.State != state || !errors.Is(r.Err, err) {
		m.failf("%s: %s is answered with %v, %v, want %v, %v", name, what, r.State, r.Err, state, err)
	}
}

// asked judges the answer to a Rollback, a retry or a discard.
func (m *model) asked(name halfmsg.Name, event halfmsg.Event, r halfmsg.Result) {
	it := m.items[name]
	to, legal := halfmsg.Next(it.state, event)
	switch {
	case it.state == halfmsg.None:
		m.expect(name, event.String(), r, halfmsg.None, halfmsg.ErrNotFound)
		return
	case event == halfmsg.EventRollback && it.state == halfmsg.RolledBack:
		to = it.state
	case !legal:
		m.expect(name, event.String(), r, it.state, halfmsg.ErrIllegal)
		return
	}
	m.expect(name, event.String(), r, to, nil)
	m.note(it.state, event)
	it.state = to
	switch event {
	case halfmsg.EventRetry:
		it.confirms, it.publishes, it.deletes = 0, 0, 0
	case halfmsg.EventDiscard:
		it.discarded, it.token = true, ""
	default:
		it.fateStored, it.token = true, ""
	}
}

// claimed judges a claim: no other lease holder, the sent content, and the right counters.
func (m *model) claimed(c *halfmsg.Claim, lease int64) {
	it := m.items[c.Name]
	switch {
	case c.State != it.state:
		m.failf("%s: claimed as %v, it is %v", c.Name, c.State, it.state)
	case c.State == halfmsg.Sendable && m.behind(c.Name):
		m.failf("%s: claimed before its turn", c.Name)
	case it.token != "" && it.leaseEnd > m.now:
		m.failf("%s: claimed while %s holds it", c.Name, it.token)
	case c.ConfirmAttempts != it.confirms || c.PublishAttempts != it.publishes || c.Copies != it.copies:
		m.failf("%s: claimed with %d confirms, %d publishes, %d copies; want %d, %d, %d", c.Name,
			c.ConfirmAttempts, c.PublishAttempts, c.Copies, it.confirms, it.publishes, it.copies)
	case c.DeleteAttempts != it.deletes:
		m.failf("%s: claimed with %d deletions, want %d", c.Name, c.DeleteAttempts, it.deletes)
	}
	if c.CallbackTarget != it.content.CallbackTarget {
		m.failf("%s: claimed with the target %q, want %q", c.Name, c.CallbackTarget, it.content.CallbackTarget)
	}
	if it.state != halfmsg.Acknowledged {
		m.same(c.Name, c.Exchange, c.RoutingKey, c.Headers, c.Body)
	}
	it.token, it.leaseEnd = c.Token, m.now+lease
}

// same wants the content of the first SendHalfMessage.
func (m *model) same(name halfmsg.Name, exchange, key string, headers map[string]string, body []byte) {
	want := &m.items[name].content
	if exchange != want.Exchange || key != want.RoutingKey || !maps.Equal(headers, want.Headers) ||
		!bytes.Equal(body, want.Body) {
		m.failf("%s: its content has changed: %s %s %v %q", name, exchange, key, headers, body)
	}
}

// settled judges the store's handling of an owner's event.
func (m *model) settled(s *halfmsg.Settlement, r halfmsg.Result) {
	it := m.items[s.Name]
	to, legal := halfmsg.Next(it.state, s.Event)
	if it.token != s.Token || it.leaseEnd <= m.now || !legal {
		m.refused(s, it, r)
		return
	}
	m.note(it.state, s.Event)
	m.grounds(s, it)
	m.count(s.Event, it)
	hurried, _ := halfmsg.Next(to, halfmsg.EventRetry)
	badNews := s.Event == halfmsg.EventGivenUp || s.Event == halfmsg.EventTimedOut || s.Event == halfmsg.EventExhausted
	switch {
	case r.Err != nil:
		m.failf("%s: its owner's %v is answered with %v, %v", s.Name, s.Event, r.State, r.Err)
	case badNews && r.State == hurried:
		to, it.confirms, it.publishes = hurried, 0, 0
	case r.State != to:
		m.failf("%s: %v leads to %v, want %v", s.Name, s.Event, r.State, to)
	}
	it.state = to
	waits := to == halfmsg.Sendable && m.behind(s.Name)
	if r.Waits != waits {
		m.failf("%s: %v, that it waits for its turn is %t, want %t", s.Name, s.Event, r.Waits, waits)
	}
	if s.Hold > 0 && !waits {
		it.leaseEnd = m.now + s.Hold.Milliseconds()
	} else {
		it.token = ""
	}
}

// refused demands that an event changes nothing if its sender holds no lease, or if there is no such move from the
// message's state: as a rule because the event came before and the first answer was lost.
func (m *model) refused(s *halfmsg.Settlement, it *item, r halfmsg.Result) {
	repeated := false
	for _, move := range halfmsg.Moves() {
		repeated = repeated || move.Event == s.Event && move.To == it.state
	}
	holds := it.token == s.Token && it.leaseEnd > m.now
	want := halfmsg.ErrLeaseLost
	switch {
	case repeated && (holds || it.state.Final()):
		want = nil
	case holds:
		want = halfmsg.ErrIllegal
	}
	if r.State != it.state || !errors.Is(r.Err, want) {
		m.failf("%s: %v by %q, which has no right to it, is answered with %v, %v; want %v", s.Name, s.Event, s.Token,
			r.State, r.Err, want)
	}
}

// grounds demands a source for each event in the store.
func (m *model) grounds(s *halfmsg.Settlement, it *item) {
	switch s.Event {
	case halfmsg.EventCommitted:
		if !it.saidCommitted {
			m.failf("%s: COMMITTED is stored without a source", s.Name)
		}
		it.fateStored = true
	case halfmsg.EventRolledBack:
		if !it.saidRolledBack {
			m.failf("%s: ROLLED_BACK is stored without a source", s.Name)
		}
		it.fateStored = true
	case halfmsg.EventAcked, halfmsg.EventAckedMarked:
		if !it.acked {
			m.failf("%s: its acknowledgement is stored and the broker has not acknowledged it", s.Name)
		}
		it.ackStored = true
	case halfmsg.EventMarkerDeleted:
		if !it.markerGone {
			m.failf("%s: DONE is stored and its marker is still there", s.Name)
		}
	case halfmsg.EventMarkerLeft:
		if it.deletes+1 != deleteTries || it.refusals < deleteTries {
			m.failf("%s: its marker is left after %d tries, and %d failures", s.Name, it.deletes+1, it.refusals)
		}
	default:
	}
}

func (m *model) count(event halfmsg.Event, it *item) {
	switch event {
	case halfmsg.EventUnknown, halfmsg.EventGivenUp:
		it.confirms++
	case halfmsg.EventRefused, halfmsg.EventExhausted:
		it.publishes++
		it.copies++
	case halfmsg.EventUnsure:
		it.copies++
	case halfmsg.EventAckedMarked: // the rest of the record does not depend on the earlier moves
		it.confirms, it.publishes, it.copies = 0, 0, 0
	case halfmsg.EventMarkerKept:
		it.deletes++
	default:
	}
}

// published judges a copy on its way to the broker.
func (m *model) published(p *halfmsg.Publishing) {
	it := m.items[p.Name]
	switch {
	case it == nil || !it.sent:
		m.failf("%s: published, and never sent", p.Name)
		return
	case !it.saidCommitted || it.saidRolledBack:
		m.failf("%s: published without a verdict COMMITTED", p.Name)
	case p.Attempt <= highest(it.attempts):
		m.failf("%s: attempt %d is published after attempt %d", p.Name, p.Attempt, highest(it.attempts))
	case p.Attempt > it.copies+1:
		m.failf("%s: attempt %d after %d copies at most", p.Name, p.Attempt, it.copies)
	}
	overtakes := func(other *item) bool {
		return !other.acked && !other.discarded && other.state != halfmsg.RolledBack
	}
	if len(it.attempts) == 0 && slices.ContainsFunc(m.before(p.Name), overtakes) {
		m.failf("%s: published out of order", p.Name)
	}
	if key := p.Headers["msghandler-key"]; key != it.content.OrderingKey {
		m.failf("%s: published with the ordering key %q", p.Name, key)
	}
	headers := maps.Clone(p.Headers)
	delete(headers, "msghandler-key")
	m.same(p.Name, p.Exchange, p.RoutingKey, headers, p.Body)
	it.attempts[p.Attempt] = true
}

func highest(attempts map[int]bool) (most int) {
	for attempt := range attempts {
		most = max(most, attempt)
	}
	return most
}

// deleted judges a DeleteBusiness.
func (m *model) deleted(name halfmsg.Name, afterAck bool) {
	it := m.items[name]
	if !it.fateStored || afterAck && it.saidCommitted && !it.ackStored {
		m.failf("%s: its marker is deleted before its fate is stored", name)
	}
}

// notDeleted notes that a producer has failed to delete markers.
func (m *model) notDeleted(producer string, ids []string) {
	for _, id := range ids {
		m.items[halfmsg.Name{Producer: producer, ID: id}].refusals++
	}
}
