package memory

import (
	"context"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// hurried are the failures that are followed by a retry at once when the message was submitted or retried while its
// owner was busy with it.
var hurried = []halfmsg.Event{
	halfmsg.EventUnknown, halfmsg.EventGivenUp, halfmsg.EventTimedOut, halfmsg.EventRefused, halfmsg.EventExhausted,
}

// Settle implements halfmsg.Settler.
func (s *Store) Settle(_ context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.broken("Settle")
	results := make([]halfmsg.Result, len(settlements))
	for i, w := range settlements {
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i] = s.settleMessage(w)
	}
	return results
}

func (s *Store) settleMessage(w halfmsg.Settlement) halfmsg.Result {
	e := s.find(w.Name)
	switch {
	case !w.Event.NeedsLease():
		return halfmsg.Result{Err: halfmsg.ErrIllegal}
	case e == nil:
		return halfmsg.Result{Err: halfmsg.ErrLeaseLost}
	case e.State.Final() && reaches(w.Event, e.State):
		return halfmsg.Result{State: e.State} // the same word, said before
	case e.Token != w.Token || !s.held(e):
		return halfmsg.Result{State: e.State, Err: halfmsg.ErrLeaseLost}
	}
	to, legal := halfmsg.Next(e.State, w.Event)
	switch {
	case !legal && reaches(w.Event, e.State):
		return halfmsg.Result{State: e.State} // said before, and the lease was kept
	case !legal:
		return halfmsg.Result{State: e.State, Err: halfmsg.ErrIllegal}
	case to.Final():
		s.finish(e, to)
	default:
		s.move(e, to, w)
	}
	return halfmsg.Result{State: e.State, Waits: e.State == halfmsg.Sendable && s.behind(e)}
}

// reaches says whether an event leads to a state from some state.
func reaches(event halfmsg.Event, state halfmsg.State) bool {
	return slices.ContainsFunc(halfmsg.Moves(), func(m halfmsg.Move) bool { return m.Event == event && m.To == state })
}

// finish leaves a trace of a message.
func (s *Store) finish(e *entry, to halfmsg.State) {
	now, key := s.now(), e.OrderingKey
	*e = entry{
		Claim:  halfmsg.Claim{Message: halfmsg.Message{Name: e.Name}, State: to},
		digest: e.digest, updated: now, ends: now.Add(Retention),
	}
	s.free(e.Producer, key)
}

// move makes an owner's move to a state in which the message is kept.
func (s *Store) move(e *entry, to halfmsg.State, w halfmsg.Settlement) {
	now := s.now()
	e.count(w.Event)
	if e.hurry && slices.Contains(hurried, w.Event) {
		e.hurry, w.After = false, 0
		if woken, _ := halfmsg.Next(to, halfmsg.EventRetry); woken != to {
			to = woken
			s.again(e)
		}
	}
	if to == halfmsg.Sendable && e.State == halfmsg.Pending { // a retry of a DEAD message is no verdict
		e.SendableAt = now
	}
	if w.Event.OnTimeline() && (w.Event != halfmsg.EventReleased || w.Cause != "") {
		s.tell(e, w.Event.String(), string(w.Token), w.Cause)
	}
	if w.Cause != "" {
		e.cause, e.failed = shorten(w.Cause), now
	}
	if to == halfmsg.Acknowledged && e.State != to {
		e.strip()
	}
	e.State, e.updated, e.due = to, now, now.Add(w.After)
	if w.Hold > 0 {
		e.due = now.Add(w.Hold)
	} else {
		e.Token = ""
	}
	switch {
	case to == halfmsg.Sendable && s.behind(e):
		s.hold(e)
	case to == halfmsg.Acknowledged:
		s.free(e.Producer, e.OrderingKey)
	}
}

// strip leaves what it takes to delete a message's marker.
func (e *entry) strip() {
	e.Claim = halfmsg.Claim{
		Message: halfmsg.Message{
			Name: e.Name, OrderingKey: e.OrderingKey, CallbackTarget: e.CallbackTarget, MarkerStore: e.MarkerStore,
		},
		Token: e.Token, CreatedAt: e.CreatedAt,
	}
	e.cause, e.failed, e.timeline = "", time.Time{}, nil
}

func (e *entry) count(event halfmsg.Event) {
	switch event {
	case halfmsg.EventUnknown, halfmsg.EventGivenUp:
		e.ConfirmAttempts++
	case halfmsg.EventRefused, halfmsg.EventExhausted:
		e.PublishAttempts++
		e.Copies++
	case halfmsg.EventUnsure:
		e.Copies++
	case halfmsg.EventMarkerKept:
		e.DeleteAttempts++
	default: // counts nothing
	}
}

func shorten(cause string) string {
	runes := []rune(cause)
	return string(runes[:min(len(runes), halfmsg.MaxCause)])
}

// Rollback implements halfmsg.Intake.
func (s *Store) Rollback(_ context.Context, names []halfmsg.Name) []halfmsg.Result {
	return s.bring(names, func(e *entry) halfmsg.Result { return s.bringOne(e, halfmsg.EventRollback) })
}

// Retry implements halfmsg.Inspector.
func (s *Store) Retry(_ context.Context, names []halfmsg.Name, by, reason string) []halfmsg.Result {
	return s.bring(names, func(e *entry) halfmsg.Result {
		result := s.bringOne(e, halfmsg.EventRetry)
		if result.Err == nil {
			s.tell(e, halfmsg.EventRetry.String(), by, reason)
		}
		return result
	})
}

// Discard implements halfmsg.Inspector.
func (s *Store) Discard(_ context.Context, names []halfmsg.Name, from halfmsg.State) []halfmsg.Result {
	return s.bring(names, func(e *entry) halfmsg.Result {
		if from != halfmsg.None && e.State != from {
			return halfmsg.Result{State: e.State, Err: halfmsg.ErrIllegal}
		}
		return s.bringOne(e, halfmsg.EventDiscard)
	})
}

// bring makes a move that needs no lease for each of the messages that are there.
func (s *Store) bring(names []halfmsg.Name, move func(*entry) halfmsg.Result) []halfmsg.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]halfmsg.Result, len(names))
	for i, name := range names {
		if e := s.find(name); e != nil {
			results[i] = move(e)
		} else {
			results[i].Err = halfmsg.ErrNotFound
		}
	}
	return results
}

func (s *Store) bringOne(e *entry, event halfmsg.Event) halfmsg.Result {
	to, legal := halfmsg.Next(e.State, event)
	switch {
	case !legal && e.State.Final() && reaches(event, e.State):
	case !legal:
		return halfmsg.Result{State: e.State, Err: halfmsg.ErrIllegal}
	case to.Final():
		s.finish(e, to)
	case to == halfmsg.None:
		delete(s.entries, e.Name)
		s.free(e.Producer, e.OrderingKey)
		return halfmsg.Result{}
	default: // a retry
		s.again(e)
		if e.hurry = s.held(e); !e.hurry {
			e.State, e.updated, e.due = to, s.now(), s.now()
			if to == halfmsg.Sendable && s.behind(e) {
				s.hold(e)
			}
		}
	}
	return halfmsg.Result{State: e.State}
}
