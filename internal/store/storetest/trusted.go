package storetest

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// trust submits messages whose Submit is the verdict, and wants each to be SENDABLE.
func (s *suite) trust(lease time.Duration, names ...halfmsg.Name) []halfmsg.Submitted {
	s.Helper()
	submitted := s.Store.SubmitTrusted(s.Context(), names, lease)
	for i, r := range submitted {
		if r.Err != nil || r.State != halfmsg.Sendable {
			s.Fatalf("trusted submit %s: %s, %v", names[i], r.State, r.Err)
		}
	}
	return submitted
}

// trusted submits messages right after their creation, and messages that the store must read first.
func trusted(s *suite) {
	for _, id := range []string{"known", "read"} {
		m := message("trusted", id)
		s.create(m)
		if id == "read" {
			s.settleClaim(s.submit(long, m.Name)[0], halfmsg.EventReleased, after(time.Hour))
		}
		claim := s.trust(long, m.Name)[0].Claim
		if claim == nil || claim.Token == "" || claim.State != halfmsg.Sendable || !reflect.DeepEqual(claim.Message, m) {
			s.Fatalf("%s: claimed as %+v", id, claim)
		}
		if r := s.get(m.Name); r.SendableAt.IsZero() || claim.SendableAt.UnixMilli() != r.SendableAt.UnixMilli() {
			s.Errorf("%s: committed at %v, and claimed as of %v", id, r.SendableAt, claim.SendableAt)
		}
		if again := s.trust(long, m.Name)[0]; again.Claim != nil {
			s.Errorf("%s: claimed twice", id)
		}
		if claims := s.claimPending(m.Producer, 10, long); len(claims) > 0 {
			s.Errorf("%s: still to be asked about", id)
		}
		if got := s.settleClaim(*claim, halfmsg.EventAcked); got != halfmsg.Done {
			s.Errorf("%s: %s", id, got)
		}
	}
}

// trustedHeld: the owner of the message asks in vain. Every verdict of the owner is refused.
func trustedHeld(s *suite) {
	for _, move := range halfmsg.Moves() {
		if move.From == halfmsg.Pending && move.Event.NeedsLease() {
			s.takeFromOwner(move.Event)
		}
	}
}

// takeFromOwner submits a claimed message, whose owner then settles an event.
func (s *suite) takeFromOwner(event halfmsg.Event) {
	m := message("trusted", fmt.Sprint(uint8(event)))
	s.create(m)
	claim := s.submit(long, m.Name)[0]
	s.Store.Submit(s.Context(), []halfmsg.Name{m.Name}, long) // and the retry is hurried
	ours := s.trust(long, m.Name)[0].Claim
	if ours == nil || ours.Token == "" || ours.Token == claim.Token || ours.Copies != 0 {
		s.Fatalf("claimed as %+v, while %s held it", ours, claim.Token)
	}
	s.untouched(m.Name, func() {
		if r := s.word(claim, event); r.State != halfmsg.Sendable || !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
			s.Errorf("the former owner says %s: %s, %v", event, r.State, r.Err)
		}
	})
	s.settleClaim(*ours, halfmsg.EventRefused, after(time.Hour))
	if claims := s.claimSendable(10, long); len(claims) > 0 {
		s.Errorf("the hurry of before the verdict still counts: %v", claims)
	}
}

func trustedDelayed(s *suite) {
	const delay = 300 * time.Millisecond
	for _, id := range []string{"known", "read", "held"} {
		m := message("trusted", id)
		m.Delay = delay
		m.Headers = map[string]string{"delay_ms": "1", "x": `"delay_ms":1,"}`}
		s.create(m)
		if id != "known" {
			claim := s.submit(long, m.Name)[0]
			if id == "read" {
				s.settleClaim(claim, halfmsg.EventReleased, after(time.Hour))
			}
		}
		before := s.get(m.Name).CreatedAt
		claim := s.trust(long, m.Name)[0].Claim
		if claim == nil || claim.Token != "" || claim.CallbackTarget != m.CallbackTarget || claim.Delay != delay ||
			claim.Body != nil {
			s.Fatalf("%s: %+v", id, claim)
		}
		r := s.get(m.Name)
		if r.LeaseOwner != "" || r.DueAt.Before(before.Add(delay)) || r.DueAt.After(before.Add(delay+time.Minute)) {
			s.Errorf("%s: due %v after it was stored, held by %q", id, r.DueAt.Sub(before), r.LeaseOwner)
		}
		if claims := s.claimSendable(10, long); len(claims) > 0 {
			s.Errorf("%s: to be published before its time", id)
		}
		var claims []halfmsg.Claim
		s.passes(delay, "it is due", func() bool {
			claims = s.claimSendable(10, long)
			return len(claims) == 1
		})
		if claims[0].Copies != 0 || !reflect.DeepEqual(claims[0].Message, m) {
			s.Errorf("%s: claimed as %+v", id, claims[0])
		}
	}
}

// trustedAbandoned: after a Submit no producer is asked about an ABANDONED message.
func trustedAbandoned(s *suite) {
	m := message("trusted", "1")
	s.bring(m, halfmsg.Abandoned)
	claim := s.trust(long, m.Name)[0].Claim
	if claim == nil || claim.Token == "" || claim.ConfirmAttempts != 0 {
		s.Fatalf("%+v", claim)
	}
	s.tells(m.Name, "send", "given_up", "submit_trusted", "committed")
	s.settleClaim(*claim, halfmsg.EventAcked)
}

func trustedMixed(s *suite) {
	fresh, later := message("mixed", "fresh"), message("other", "later")
	later.Delay = time.Hour
	s.create(fresh, later)
	batch := []halfmsg.Name{fresh.Name, {Producer: "mixed", ID: "none"}, later.Name, fresh.Name}
	want := []halfmsg.Submitted{
		{Result: halfmsg.Result{State: halfmsg.Sendable}, Claim: &halfmsg.Claim{}},
		{Result: halfmsg.Result{Err: halfmsg.ErrNotFound}},
		{Result: halfmsg.Result{State: halfmsg.Sendable}, Claim: &halfmsg.Claim{}},
		{Result: halfmsg.Result{State: halfmsg.Sendable}},
	}
	for _, state := range []halfmsg.State{halfmsg.Dead, halfmsg.Acknowledged, halfmsg.Done, halfmsg.RolledBack} {
		m := message("mixed", state.String())
		s.bring(m, state)
		r := halfmsg.Submitted{Result: halfmsg.Result{State: state}}
		if state == halfmsg.RolledBack {
			r.Err = halfmsg.ErrIllegal
		}
		batch, want = append(batch, m.Name), append(want, r)
	}
	for i, r := range s.Store.SubmitTrusted(s.Context(), batch, long) {
		if r.State != want[i].State || !errors.Is(r.Err, want[i].Err) || (r.Claim == nil) != (want[i].Claim == nil) {
			s.Errorf("%s: %s, %v, claim %v; want %+v", batch[i], r.State, r.Err, r.Claim, want[i])
		}
	}
	if empty := s.Store.SubmitTrusted(s.Context(), nil, long); len(empty) != 0 {
		s.Errorf("no submits: %v", empty)
	}
}

// trustedRace: the first definitive verdict wins, and the second is refused.
func trustedRace(s *suite) {
	for i := range 20 {
		m := message("trusted", fmt.Sprint(i))
		s.create(m)
		claim := s.submit(long, m.Name)[0]
		var submitted halfmsg.Submitted
		var rolledBack halfmsg.Result
		var both sync.WaitGroup
		both.Go(func() { submitted = s.Store.SubmitTrusted(s.Context(), []halfmsg.Name{m.Name}, long)[0] })
		both.Go(func() { rolledBack = s.word(claim, halfmsg.EventRolledBack) })
		both.Wait()
		state := s.state(m.Name)
		if submitted.State != state || rolledBack.State != state || (submitted.Err == nil) == (rolledBack.Err == nil) {
			s.Errorf("%s: the Submit hears %s, %v, and the owner %s, %v", state, submitted.State, submitted.Err,
				rolledBack.State, rolledBack.Err)
		}
	}
}
