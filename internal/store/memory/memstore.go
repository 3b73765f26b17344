// Package memory is a store in memory for tests of the loops. The store keeps the promise of storetest by the local
// clock, so tests can run in fake time, and tests can make the store fail.
package memory

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Retention is how long the trace of a finished message is kept.
const Retention = 10 * time.Minute

// Store implements halfmsg.Intake, halfmsg.ConfirmStore, halfmsg.SendStore and halfmsg.Inspector. Make one with New.
type Store struct {
	now func() time.Time

	mu      sync.Mutex
	entries map[halfmsg.Name]*entry
	stored  int
	claims  int
	fail    func(call string) error
}

// entry is one message, in any state. Of a finished one little more than the digest is left.
type entry struct {
	halfmsg.Claim
	digest string
	// number is the place in the order in which messages were stored.
	number  int
	updated time.Time
	// due is when the lease ends, while the token of an owner is kept.
	due time.Time
	// ends is when the receipt of a finished message expires.
	ends time.Time
	// hurry says that it was submitted or retried while its owner was busy.
	hurry    bool
	cause    string
	failed   time.Time // when the cause was written down
	timeline halfmsg.Timeline
}

// New returns an empty store.
func New() *Store {
	return &Store{now: time.Now, entries: map[halfmsg.Name]*entry{}}
}

// Break makes calls fail: fail gets the method's name and returns the error, or nil. A nil fail makes all well again.
func (s *Store) Break(fail func(call string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *Store) broken(call string) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(call)
}

// find gives a message, nil when there is none or its receipt has expired.
func (s *Store) find(name halfmsg.Name) *entry {
	e := s.entries[name]
	if e != nil && e.State.Final() && !s.now().Before(e.ends) {
		delete(s.entries, name)
		return nil
	}
	return e
}

// held says whether an owner's lease still lasts.
func (s *Store) held(e *entry) bool { return e.Token != "" && e.due.After(s.now()) }

// Lane implements halfmsg.Intake.
func (s *Store) Lane(halfmsg.Name) string { return "" }

// Create implements halfmsg.Intake.
func (s *Store) Create(_ context.Context, messages []halfmsg.Message) []halfmsg.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.broken("Create")
	results := make([]halfmsg.Result, len(messages))
	for i, m := range messages {
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i] = s.create(m)
	}
	return results
}

func (s *Store) create(m halfmsg.Message) halfmsg.Result {
	if s.find(m.Name) != nil {
		return s.recall(m)
	}
	if s.chainFull(m.Producer, m.OrderingKey) {
		return halfmsg.Result{Err: halfmsg.ErrKeyHeld}
	}
	now := s.now()
	s.stored++
	s.entries[m.Name] = &entry{
		Claim: halfmsg.Claim{Message: m, State: halfmsg.Pending, CreatedAt: now}, digest: m.Digest(),
		number: s.stored, due: now.Add(m.ConfirmAfter),
	}
	return halfmsg.Result{State: halfmsg.Pending}
}

// Recall implements halfmsg.Intake.
func (s *Store) Recall(_ context.Context, messages []halfmsg.Message) []halfmsg.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.broken("Recall")
	results := make([]halfmsg.Result, len(messages))
	for i, m := range messages {
		if results[i].Err = err; err == nil {
			results[i] = s.recall(m)
		}
	}
	return results
}

func (s *Store) recall(m halfmsg.Message) halfmsg.Result {
	e := s.find(m.Name)
	switch {
	case e == nil:
		return halfmsg.Result{Err: halfmsg.ErrNotFound}
	case e.digest != m.Digest():
		return halfmsg.Result{State: e.State, Err: halfmsg.ErrExists}
	}
	return halfmsg.Result{State: e.State}
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
	e := s.find(name)
	if e == nil {
		answer.Err = halfmsg.ErrNotFound
		return answer
	}
	to, legal := halfmsg.Next(e.State, halfmsg.EventSubmit)
	switch {
	case !legal && e.State == halfmsg.RolledBack:
		answer.Err = halfmsg.ErrIllegal
	case !legal:
	case s.held(e):
		e.hurry = true
	default:
		woken := e.State != to
		if woken {
			s.again(e)
			e.State, e.updated = to, s.now()
		}
		claim := s.claim(e, lease)
		answer.Claim = &claim
		if woken {
			s.tell(e, halfmsg.EventSubmit.String(), string(claim.Token), "")
		}
	}
	answer.State = e.State
	return answer
}

// SubmitTrusted implements halfmsg.Intake.
func (s *Store) SubmitTrusted(_ context.Context, names []halfmsg.Name, lease time.Duration) []halfmsg.Submitted {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.broken("SubmitTrusted")
	results := make([]halfmsg.Submitted, len(names))
	for i, name := range names {
		if err != nil {
			results[i].Err = err
			continue
		}
		results[i] = s.submitTrusted(name, lease)
	}
	return results
}

func (s *Store) submitTrusted(name halfmsg.Name, lease time.Duration) (answer halfmsg.Submitted) {
	e := s.find(name)
	if e == nil {
		answer.Err = halfmsg.ErrNotFound
		return answer
	}
	from := e.State
	to, legal := halfmsg.Next(from, halfmsg.EventSubmitTrusted)
	if !legal {
		answer.State = from
		if from == halfmsg.RolledBack {
			answer.Err = halfmsg.ErrIllegal
		}
		return answer
	}
	if from == halfmsg.Abandoned {
		s.again(e)
	}
	now := s.now()
	e.State, e.updated, e.SendableAt, e.Token, e.due, e.hurry = to, now, now, "", now.Add(e.Delay), false
	if s.behind(e) {
		s.hold(e)
	}
	claim := e.Claim
	if e.Delay <= 0 && !s.behind(e) {
		claim = s.claim(e, lease)
	} else {
		claim.Body = nil
	}
	if from == halfmsg.Abandoned {
		s.tell(e, halfmsg.EventSubmitTrusted.String(), string(claim.Token), "")
	}
	answer.State, answer.Claim = to, &claim
	return answer
}

// again sets the attempts back, and lets successors be as patient as at first.
func (s *Store) again(e *entry) {
	e.ConfirmAttempts, e.PublishAttempts, e.DeleteAttempts = 0, 0, 0
	if !e.AwaitedSince.IsZero() {
		e.AwaitedSince = s.now()
	}
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
	slices.Sort(producers)
	return producers, s.broken("PendingProducers")
}

// ClaimPending implements halfmsg.ConfirmStore.
func (s *Store) ClaimPending(
	_ context.Context, quota map[string]int, lease time.Duration, without ...halfmsg.LeftOut,
) ([]halfmsg.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken("ClaimPending"); err != nil {
		return nil, err
	}
	var claims []halfmsg.Claim
	taken := map[string]int{}
	for _, e := range s.claimable(func(e *entry) bool { return e.State == halfmsg.Pending && !s.leavesOut(e, without) }) {
		if taken[e.Producer] < quota[e.Producer] {
			taken[e.Producer]++
			claims = append(claims, s.claim(e, lease))
		}
	}
	return claims, nil
}

// ClaimSendable implements halfmsg.SendStore. Producers take turns.
func (s *Store) ClaimSendable(
	_ context.Context, limit int, lease time.Duration, brokers ...string,
) ([]halfmsg.Claim, error) {
	return s.claimShared("ClaimSendable", limit, lease, func(e *entry) bool {
		return e.State == halfmsg.Sendable && (len(brokers) == 0 || slices.Contains(brokers, e.Broker))
	})
}

// ClaimAcknowledged implements halfmsg.ConfirmStore. Producers take turns.
func (s *Store) ClaimAcknowledged(
	_ context.Context, limit int, lease time.Duration, without ...halfmsg.LeftOut,
) ([]halfmsg.Claim, error) {
	return s.claimShared("ClaimAcknowledged", limit, lease, func(e *entry) bool {
		return e.State == halfmsg.Acknowledged && !s.leavesOut(e, without)
	})
}

// leavesOut says whether a message has one of the targets and is younger than its limit.
func (s *Store) leavesOut(e *entry, without []halfmsg.LeftOut) bool {
	return slices.ContainsFunc(without, func(l halfmsg.LeftOut) bool {
		return l.Producer == e.Producer && l.Address == e.CallbackTarget && l.MarkerStore == e.MarkerStore &&
			(l.MaxAge == 0 || s.now().Sub(e.CreatedAt) < l.MaxAge)
	})
}

func (s *Store) claimShared(
	call string, limit int, lease time.Duration, wanted func(*entry) bool,
) ([]halfmsg.Claim, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.broken(call); err != nil {
		return nil, err
	}
	turns, turn := map[*entry]int{}, map[string]int{}
	due := s.claimable(wanted)
	for _, e := range due {
		turns[e] = turn[e.Producer]
		turn[e.Producer]++
	}
	slices.SortStableFunc(due, func(a, b *entry) int { return turns[a] - turns[b] })
	var claims []halfmsg.Claim
	for _, e := range due[:min(limit, len(due))] {
		claims = append(claims, s.claim(e, lease))
	}
	return claims, nil
}

// claimable lists what is due of the wanted messages, longest due first. What an owner holds is due when the lease
// ends.
func (s *Store) claimable(wanted func(*entry) bool) []*entry {
	now := s.now()
	var due []*entry
	for _, e := range s.entries {
		if wanted(e) && !e.due.After(now) {
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
	lost := e.Token
	if lost != "" && e.State == halfmsg.Sendable {
		e.Copies++ // the owner whose lease ended may have sent one
	}
	s.claims++
	e.Token, e.due, e.hurry = halfmsg.Token(fmt.Sprintf("claim-%d", s.claims)), s.now().Add(lease), false
	if lost != "" {
		s.tell(e, halfmsg.TakenOver, string(e.Token), fmt.Sprintf("the lease of %s ended", lost))
	}
	claim := e.Claim
	claim.ClaimedAt = s.now()
	return claim
}

// tell puts what happens now on a message's timeline.
func (s *Store) tell(e *entry, what, by, cause string) {
	now := s.now()
	e.timeline = e.timeline.Add(halfmsg.Happening{What: what, First: now, Last: now, Times: 1, By: by, Cause: cause})
}
