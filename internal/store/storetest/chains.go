package storetest

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// chain stores messages with one ordering key, one after the other.
func (s *suite) chain(key string, ids ...string) []halfmsg.Message {
	s.Helper()
	all := make([]halfmsg.Message, len(ids))
	for i, id := range ids {
		all[i] = message("orders", id)
		all[i].OrderingKey = key
		s.create(all[i])
	}
	return all
}

// commit submits a message and stores the verdict COMMITTED of its owner, who goes on, and says whether the message
// waits for its turn.
func (s *suite) commit(m halfmsg.Message) (claim halfmsg.Claim, waits bool) {
	s.Helper()
	claim = s.submit(long, m.Name)[0]
	r := s.word(claim, halfmsg.EventCommitted, holding(long))
	if r.Err != nil || r.State != halfmsg.Sendable {
		s.Fatalf("committed %s: %v, %v", m.Name, r.State, r.Err)
	}
	claim.State = r.State
	return claim, r.Waits
}

// claims wants the ids of the messages that are due to be published now, and returns their claims.
func (s *suite) claims(ids ...string) []halfmsg.Claim {
	s.Helper()
	claims := s.claimSendable(100, long)
	got := make([]string, len(claims))
	for i := range claims {
		got[i] = claims[i].ID
	}
	slices.Sort(got)
	if !slices.Equal(got, ids) {
		s.Fatalf("due to be published: %v, want %v", got, ids)
	}
	return claims
}

// chainInOrder commits the messages of a chain in the inverse order: each is due when those before it are acknowledged,
// and not before.
func chainInOrder(s *suite) {
	all := s.chain("customer-7", "1", "2", "3")
	other := s.chain("customer-8", "4")[0]
	for _, m := range []halfmsg.Message{all[2], all[1]} {
		if _, waits := s.commit(m); !waits {
			s.Errorf("%s does not wait for its turn", m.Name)
		}
		if r := s.get(m.Name); r.HeldBy != "1" || !r.DueAt.IsZero() || r.LeaseOwner != "" {
			s.Errorf("%s is held by %q, due at %v, and leased to %q", m.Name, r.HeldBy, r.DueAt, r.LeaseOwner)
		}
	}
	s.claims()
	stats, err := s.Store.Stats(s.Context())
	for _, stat := range stats {
		if stat.State == halfmsg.Sendable && (stat.Held != 2 || stat.Count != 2 || !stat.FirstDueAt.IsZero()) {
			s.Errorf("%d of %d messages are held, the first is due at %v, %v", stat.Held, stat.Count, stat.FirstDueAt, err)
		}
	}
	first, waits := s.commit(all[0])
	if waits {
		s.Error("the first waits for its turn")
	}
	second, waits := s.commit(other)
	if waits {
		s.Error("the message of another chain waits for its turn")
	}
	s.claims()
	s.settleClaim(first, halfmsg.EventAcked)
	next := s.claims("2")[0]
	if next.OrderingKey != "customer-7" {
		s.Errorf("claimed with the key %q", next.OrderingKey)
	}
	s.settleClaim(second, halfmsg.EventAcked)
	s.settleClaim(next, halfmsg.EventRefused, after(time.Hour))
	s.claims()
	s.retry(next.Name)
	s.settleClaim(s.claims("2")[0], halfmsg.EventAckedMarked)
	s.settleClaim(s.claims("3")[0], halfmsg.EventAcked)
	if late := s.chain("customer-7", "5")[0]; s.submitTrusted(late).Token == "" {
		s.Error("the first of a new chain waits for its turn")
	}
}

// submitTrusted stores a Submit as verdict.
func (s *suite) submitTrusted(m halfmsg.Message) halfmsg.Claim {
	s.Helper()
	submitted := s.trust(long, m.Name)[0]
	if submitted.Claim == nil {
		s.Fatalf("trusted submit of %s: %+v", m.Name, submitted)
	}
	return *submitted.Claim
}

// retry is an operator's retry of a message.
func (s *suite) retry(name halfmsg.Name) {
	s.Helper()
	if r := s.Store.Retry(s.Context(), []halfmsg.Name{name}, "ann", "")[0]; r.Err != nil {
		s.Fatalf("retry %s: %v", name, r.Err)
	}
}

// chainTrusted: a trusted Submit claims only the first of a chain.
func chainTrusted(s *suite) {
	all := s.chain("k", "1", "2")
	if claim := s.submitTrusted(all[1]); claim.Token != "" || claim.Body != nil {
		s.Errorf("claimed before its turn: %+v", claim)
	}
	s.claims()
	s.settleClaim(s.submitTrusted(all[0]), halfmsg.EventAcked)
	s.claims("2")
}

// chainGoesOn: a chain goes on when its first message ends in any way, and only then.
func chainGoesOn(s *suite) {
	ends := []func(m halfmsg.Message){
		func(m halfmsg.Message) { s.settleClaim(s.submit(long, m.Name)[0], halfmsg.EventRolledBack) },
		func(m halfmsg.Message) { s.Store.Rollback(s.Context(), []halfmsg.Name{m.Name}) },
		func(m halfmsg.Message) { s.Store.Discard(s.Context(), []halfmsg.Name{m.Name}, halfmsg.None) },
		func(m halfmsg.Message) { // DEAD, then an operator discards it
			claim, _ := s.commit(m)
			s.settleClaim(claim, halfmsg.EventExhausted)
			s.claims()
			s.Store.Discard(s.Context(), []halfmsg.Name{m.Name}, halfmsg.Dead)
		},
		func(m halfmsg.Message) { // DEAD, then an operator retries it
			claim, _ := s.commit(m)
			s.settleClaim(claim, halfmsg.EventExhausted)
			s.claims()
			s.retry(m.Name)
			s.settleClaim(s.claims(m.ID)[0], halfmsg.EventAcked)
		},
		func(m halfmsg.Message) { // ABANDONED, then a late Submit
			s.settleClaim(s.submit(long, m.Name)[0], halfmsg.EventGivenUp)
			s.claims()
			claim, waits := s.commit(m)
			if waits {
				s.Error("the first waits for its turn")
			}
			s.settleClaim(claim, halfmsg.EventAcked)
		},
	}
	for i, end := range ends {
		all := s.chain("k", fmt.Sprintf("%d-a", i), fmt.Sprintf("%d-b", i), fmt.Sprintf("%d-c", i))
		s.commit(all[1])
		s.commit(all[2])
		s.claims()
		end(all[0])
		s.settleClaim(s.claims(all[1].ID)[0], halfmsg.EventAcked)
		s.settleClaim(s.claims(all[2].ID)[0], halfmsg.EventAcked)
	}
}

// chainRetry: no retry of a message makes it due before its turn.
func chainRetry(s *suite) {
	all := s.chain("k", "1", "2")
	s.commit(all[1])
	s.retry(all[1].Name)
	s.claims()
	if r := s.get(all[1].Name); r.HeldBy != "1" {
		s.Errorf("held by %q", r.HeldBy)
	}
}

// chainLostLease: the lease of a chain's first message ends, and no other message of the chain is due then.
func chainLostLease(s *suite) {
	all := s.chain("k", "1", "2")
	s.commit(all[1])
	claim := s.submit(long, all[0].Name)[0]
	s.settleClaim(claim, halfmsg.EventCommitted, holding(short))
	s.passes(short, "the message is due", func() bool {
		claims := s.claimSendable(10, long)
		if len(claims) > 1 || len(claims) == 1 && claims[0].ID != "1" {
			s.Fatalf("claimed: %+v", claims)
		}
		return len(claims) == 1
	})
	s.claims()
	if r := s.word(claim, halfmsg.EventAcked); !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		s.Errorf("the former owner: %v, %v", r.State, r.Err)
	}
	s.claims()
}

// chainAwaits: a committed message makes the questions about the open ones before it due, and they know since when.
func chainAwaits(s *suite) {
	all := s.chain("k", "1", "2", "3", "4")
	busy := s.submit(long, all[1].Name)[0]
	s.commit(all[2])
	claims := s.claimPending("orders", 10, long)
	if len(claims) != 1 || claims[0].ID != "1" || claims[0].AwaitedSince.IsZero() {
		s.Fatalf("asked about: %+v", claims)
	}
	s.settleClaim(claims[0], halfmsg.EventUnknown, after(time.Hour))
	if claims := s.claimPending("orders", 10, long); len(claims) > 0 {
		s.Errorf("asked about: %+v", claims)
	}
	s.settleClaim(busy, halfmsg.EventUnknown, after(time.Hour))
	if claims := s.claimPending("orders", 10, long); len(claims) != 1 || claims[0].ID != "2" {
		s.Errorf("asked about: %+v", claims)
	}
	if r := s.get(all[3].Name); !r.AwaitedSince.IsZero() {
		s.Errorf("a message without a committed successor is awaited since %v", r.AwaitedSince)
	}
}

// chainBatch: the messages of a chain end and commit in one batch.
func chainBatch(s *suite) {
	all := s.chain("k", "1", "2", "3")
	first, _ := s.commit(all[0])
	open := s.submit(long, all[1].Name, all[2].Name)
	settlements := []halfmsg.Settlement{
		{Name: first.Name, OrderingKey: "k", Token: first.Token, Event: halfmsg.EventAcked},
		{Name: open[0].Name, OrderingKey: "k", Token: open[0].Token, Event: halfmsg.EventRolledBack},
		{Name: open[1].Name, OrderingKey: "k", Token: open[1].Token, Event: halfmsg.EventCommitted},
	}
	for i, r := range s.Store.Settle(s.Context(), settlements) {
		if r.Err != nil {
			s.Fatalf("settlement %d: %v, %v", i, r.State, r.Err)
		}
	}
	s.claims("3")
}

// chainBound: a chain is bounded, other chains and messages without a key go on, and a repeated call gets its state.
func chainBound(s *suite) {
	all := messages("orders", heldPerKey+1)
	for i := range all {
		all[i].OrderingKey = "k"
	}
	s.create(all[:heldPerKey]...)
	r := s.Store.Create(s.Context(), all[heldPerKey:])[0]
	if !errors.Is(r.Err, halfmsg.ErrKeyHeld) {
		s.Fatalf("one more: %v, %v", r.State, r.Err)
	}
	s.create(s.chain("other", "x")[0])
	s.create(all[0])
	s.Store.Rollback(s.Context(), []halfmsg.Name{all[5].Name})
	s.create(all[heldPerKey])
}

// heldPerKey is the bound of a chain, of every store under test.
const heldPerKey = 1000

// chainNames: a name belongs to one message, with its key.
func chainNames(s *suite) {
	keyed := s.chain("k", "1", "2")
	plain, other := keyed[0], keyed[0]
	plain.OrderingKey, other.OrderingKey = "", "other"
	for _, m := range []halfmsg.Message{plain, other} {
		if r := s.Store.Create(s.Context(), []halfmsg.Message{m})[0]; !errors.Is(r.Err, halfmsg.ErrExists) ||
			r.State != halfmsg.Pending {
			s.Errorf("key %q: %v, %v", m.OrderingKey, r.State, r.Err)
		}
	}
	unkeyed := message("orders", "3")
	s.create(unkeyed)
	unkeyed.OrderingKey = "k"
	if r := s.Store.Create(s.Context(), []halfmsg.Message{unkeyed})[0]; !errors.Is(r.Err, halfmsg.ErrExists) ||
		r.State != halfmsg.Pending {
		s.Errorf("a name without a key: %v, %v", r.State, r.Err)
	}
	if r := s.Store.Recall(s.Context(), keyed[:1])[0]; r.Err != nil || r.State != halfmsg.Pending {
		s.Errorf("recall: %v, %v", r.State, r.Err)
	}
	claim, _ := s.commit(keyed[0])
	s.settleClaim(claim, halfmsg.EventAcked)
	if r := s.Store.Create(s.Context(), keyed[:1])[0]; r.Err != nil || r.State != halfmsg.Done {
		s.Errorf("sent again: %v, %v", r.State, r.Err)
	}
	if got := s.state(keyed[0].Name); got != halfmsg.Done {
		s.Errorf("get: %v", got)
	}
}
