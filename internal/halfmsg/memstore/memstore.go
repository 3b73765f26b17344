// Package memstore is a store in memory, for the tests of those who work on a store. It follows the table of moves and
// the rules of claims and leases by the local clock, so that tests can run in fake time. It lists nothing and forgets
// nothing.
package memstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Store implements halfmsg.Intake, halfmsg.ConfirmStore and halfmsg.SendStore. Make one with New.
type Store struct {
	mu      sync.Mutex
	entries map[halfmsg.Name]*entry
	claims  int
	fail    func(call string) error
}

// entry is one message, whatever its state.
type entry struct {
	halfmsg.Claim
	due   time.Time
	lease time.Time
	cause string
}

// New returns an empty store.
func New() *Store {
	return &Store{entries: map[halfmsg.Name]*entry{}}
}

// Break makes calls fail: fail gets the method's name and returns the error, or nil. A nil fail makes all well again.
func (s *Store) Break(fail func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

// Peek shows a message: where it stands, when it is due, when its lease ends and its last error.
func (s *Store) Peek(name halfmsg.Name) halfmsg.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[name]
	if e == nil {
		return halfmsg.Record{}
	}
	return halfmsg.Record{
		Message: e.Message, State: e.State, DueAt: e.due, ConfirmAttempts: e.ConfirmAttempts,
		PublishAttempts: e.PublishAttempts, DeleteAttempts: e.DeleteAttempts, LastError: e.cause, LeaseOwner: string(e.Token), LeaseUntil: e.lease,
	}
}

// Count says how many messages stand in a state.
func (s *Store) Count(state halfmsg.State) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.entries {
		if e.State == state {
			n++
		}
	}
	return n
}

func (s *Store) broken(call string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(call)
}

// Create implements halfmsg.Intake.
func (s *Store) Create(_ context.Context, messages []halfmsg.Message) []halfmsg.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.broken("Create")
	results := make([]halfmsg.Result, len(messages))
	for i, m := range messages {
		e := s.entries[m.Name]
		switch {
		case err != nil:
			results[i].Err = err
		case e == nil:
			s.entries[m.Name] = &entry{
				Claim: halfmsg.Claim{Message: m, State: halfmsg.Pending}, due: time.Now().Add(m.ConfirmAfter),
			}
			results[i].State = halfmsg.Pending
		case e.Digest() != m.Digest():
			results[i] = halfmsg.Result{State: e.State, Err: halfmsg.ErrExists}
		default:
			results[i].State = e.State
		}
	}
	return results
}

// Submit implements halfmsg.Intake.
func (s *Store) Submit(_ context.Context, names []halfmsg.Name, lease time.Duration) []halfmsg.Submitted {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.broken("Submit")
	results := make([]halfmsg.Submitted, len(names))
	for i, name := range names {
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i] = s.submit(name, lease)
	}
	return results
}

func (s *Store) submit(name halfmsg.Name, lease time.Duration) (answer halfmsg.Submitted) {
	e := s.entries[name]
	if e == nil {
		answer.Err = halfmsg.ErrNotFound
		return answer
	}
	if to, legal := halfmsg.Next(e.State, halfmsg.EventSubmit); legal {
		if e.State == halfmsg.Abandoned {
			e.ConfirmAttempts = 0
		}
		e.State, e.due = to, time.Now()
		if e.Token == "" || !e.lease.After(time.Now()) {
			claim := s.claim(e, lease)
			answer.Claim = &claim
		}
	} else if e.State == halfmsg.RolledBack {
		answer.Err = halfmsg.ErrIllegal
	}
	answer.State = e.State
	return answer
}

// Rollback implements halfmsg.Intake.
func (s *Store) Rollback(_ context.Context, names []halfmsg.Name) []halfmsg.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make([]halfmsg.Result, len(names))
	for i, name := range names {
		e := s.entries[name]
		if e == nil {
			results[i].Err = halfmsg.ErrNotFound
			continue
		}
		if to, legal := halfmsg.Next(e.State, halfmsg.EventRollback); legal {
			e.State, e.Token = to, ""
		} else if e.State != halfmsg.RolledBack {
			results[i].Err = halfmsg.ErrIllegal
		}
		results[i].State = e.State
	}
	return results
}

// PendingProducers implements halfmsg.ConfirmStore.
func (s *Store) PendingProducers(context.Context) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var producers []string
	for name, e := range s.entries {
		if e.State == halfmsg.Pending && !slices.Contains(producers, name.Producer) {
			producers = append(producers, name.Producer)
		}
	}
	return producers, s.broken("PendingProducers")
}

// ClaimPending implements halfmsg.ConfirmStore.
func (s *Store) ClaimPending(_ context.Context, quota map[string]int, lease time.Duration) ([]halfmsg.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken("ClaimPending"); err != nil {
		return nil, err
	}
	var claims []halfmsg.Claim
	taken := map[string]int{}
	for _, e := range s.claimable(halfmsg.Pending) {
		if taken[e.Producer] < quota[e.Producer] {
			taken[e.Producer]++
			claims = append(claims, s.claim(e, lease))
		}
	}
	return claims, nil
}

// ClaimSendable implements halfmsg.SendStore, without the fair shares.
func (s *Store) ClaimSendable(_ context.Context, limit int, lease time.Duration) ([]halfmsg.Claim, error) {
	return s.claimShared("ClaimSendable", halfmsg.Sendable, limit, lease)
}

// ClaimAcknowledged implements halfmsg.ConfirmStore, without the fair shares.
func (s *Store) ClaimAcknowledged(_ context.Context, limit int, lease time.Duration) ([]halfmsg.Claim, error) {
	return s.claimShared("ClaimAcknowledged", halfmsg.Acknowledged, limit, lease)
}

func (s *Store) claimShared(call string, state halfmsg.State, limit int, lease time.Duration) ([]halfmsg.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken(call); err != nil {
		return nil, err
	}
	var claims []halfmsg.Claim
	for _, e := range s.claimable(state) {
		if len(claims) < limit {
			claims = append(claims, s.claim(e, lease))
		}
	}
	return claims, nil
}

// claimable lists what is due in a state and free to be claimed, longest due first.
func (s *Store) claimable(state halfmsg.State) []*entry {
	now := time.Now()
	var due []*entry
	for _, e := range s.entries {
		if e.State == state && !e.due.After(now) && (e.Token == "" || !e.lease.After(now)) {
			due = append(due, e)
		}
	}
	slices.SortFunc(due, func(a, b *entry) int {
		if byTime := a.due.Compare(b.due); byTime != 0 {
			return byTime
		}
		return strings.Compare(a.ID, b.ID)
	})
	return due
}

func (s *Store) claim(e *entry, lease time.Duration) halfmsg.Claim {
	if e.Token != "" && e.State == halfmsg.Sendable {
		e.Copies++ // the owner whose lease ended may have sent one
	}
	s.claims++
	e.Token, e.lease = halfmsg.Token(fmt.Sprintf("claim-%d", s.claims)), time.Now().Add(lease)
	return e.Claim
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
		results[i] = s.settle(w)
	}
	return results
}

func (s *Store) settle(w halfmsg.Settlement) halfmsg.Result {
	e, now := s.entries[w.Name], time.Now()
	if e == nil {
		return halfmsg.Result{Err: halfmsg.ErrNotFound}
	}
	if e.Token != w.Token || !e.lease.After(now) {
		return halfmsg.Result{State: e.State, Err: halfmsg.ErrLeaseLost}
	}
	to, legal := halfmsg.Next(e.State, w.Event)
	if !legal || !w.Event.Owned() {
		return halfmsg.Result{State: e.State, Err: halfmsg.ErrIllegal}
	}
	e.State, e.due = to, now.Add(w.After)
	if w.Cause != "" {
		e.cause = w.Cause
	}
	switch w.Event {
	case halfmsg.EventCommitted:
		e.SendableAt = now
	case halfmsg.EventUnknown:
		e.ConfirmAttempts++
	case halfmsg.EventRefused, halfmsg.EventExhausted:
		e.PublishAttempts++
		e.Copies++
	case halfmsg.EventUnsure:
		e.Copies++
	case halfmsg.EventAckedMarked:
		e.Message = halfmsg.Message{Name: e.Name, CallbackTarget: e.CallbackTarget}
	case halfmsg.EventMarkerKept:
		e.DeleteAttempts++
	default: // counts nothing
	}
	if w.Hold > 0 {
		e.lease = now.Add(w.Hold)
	} else {
		e.Token = ""
	}
	return halfmsg.Result{State: to}
}
