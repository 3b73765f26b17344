package storetest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// everyMove tries every event in every state, legal or not. A replay needs an archive, which few stores have.
func everyMove(s *suite) {
	for _, state := range halfmsg.States() {
		for _, event := range halfmsg.Events() {
			if event == halfmsg.EventReplay {
				continue
			}
			m := message("moves", state.String()+"-"+strings.ReplaceAll(event.String(), "_", "-"))
			claim := s.bring(m, state)
			s.checkMove(claim, state, event)
		}
	}
}

func (s *suite) checkMove(claim halfmsg.Claim, state halfmsg.State, event halfmsg.Event) {
	s.Helper()
	wantState, wantErr := expected(state, event)
	act := func() {
		got := s.act(claim, event)
		if got.State != wantState || !errors.Is(got.Err, wantErr) {
			s.Errorf("%s on %s: got %s, %v; want %s, %v", event, state, got.State, got.Err, wantState, wantErr)
		}
	}
	if _, legal := halfmsg.Next(state, event); legal {
		act()
		if now := s.state(claim.Name); now != wantState {
			s.Errorf("%s on %s: said %s, is %s", event, state, wantState, now)
		}
		return
	}
	s.untouched(claim.Name, act)
}

// expected is the contract's answer to an event on a message in a state. If the state has leases, the caller holds the
// lease.
func expected(state halfmsg.State, event halfmsg.Event) (halfmsg.State, error) {
	if to, legal := halfmsg.Next(state, event); legal {
		return to, nil
	}
	switch {
	case event == halfmsg.EventSend:
		return state, nil
	case state == halfmsg.None && event.NeedsLease():
		return state, halfmsg.ErrLeaseLost
	case state == halfmsg.None:
		return state, halfmsg.ErrNotFound
	case submits(event) && state == halfmsg.RolledBack:
		return state, halfmsg.ErrIllegal
	case submits(event):
		return state, nil
	case reaches(event, state) && (state.Final() || state == halfmsg.Sendable || state == halfmsg.Acknowledged):
		return state, nil // made before
	case event.NeedsLease() && !slices.Contains(worked, state):
		return state, halfmsg.ErrLeaseLost
	}
	return state, halfmsg.ErrIllegal
}

// submits says whether an event is a Submit, which is answered with the state the message has.
func submits(event halfmsg.Event) bool {
	return event == halfmsg.EventSubmit || event == halfmsg.EventSubmitTrusted
}

// worked are the states in which an owner can hold a message.
var worked = []halfmsg.State{halfmsg.Pending, halfmsg.Sendable, halfmsg.Acknowledged}

// reaches says whether an event leads from a state to another.
func reaches(event halfmsg.Event, state halfmsg.State) bool {
	for _, m := range halfmsg.Moves() {
		if m.Event == event && m.To == state && m.From != state {
			return true
		}
	}
	return false
}

func (s *suite) act(claim halfmsg.Claim, event halfmsg.Event) halfmsg.Result {
	one := []halfmsg.Name{claim.Name}
	switch event {
	case halfmsg.EventSend:
		return s.Store.Create(s.Context(), []halfmsg.Message{claim.Message})[0]
	case halfmsg.EventSubmit:
		return s.Store.Submit(s.Context(), one, long)[0].Result
	case halfmsg.EventSubmitTrusted:
		return s.Store.SubmitTrusted(s.Context(), one, long)[0].Result
	case halfmsg.EventRollback:
		return s.Store.Rollback(s.Context(), one)[0]
	case halfmsg.EventRetry:
		return s.Store.Retry(s.Context(), one, "", "")[0]
	case halfmsg.EventDiscard:
		return s.Store.Discard(s.Context(), one, halfmsg.None)[0]
	}
	return s.word(claim, event)
}

// foreignTokens settles with a token that was never issued, and with events that no owner may send.
func foreignTokens(s *suite) {
	for _, state := range worked {
		claim := s.bring(message("tokens", state.String()), state)
		thief := claim
		thief.Token += "x"
		for _, event := range halfmsg.Events() {
			speaker, want := thief, halfmsg.ErrLeaseLost
			if !event.NeedsLease() {
				speaker, want = claim, halfmsg.ErrIllegal
			}
			s.untouched(claim.Name, func() {
				if r := s.word(speaker, event); !errors.Is(r.Err, want) {
					s.Errorf("%s on %s: %v, want %v", event, state, r.Err, want)
				}
			})
		}
	}
}

// settleMixed settles a batch with every kind of outcome.
func settleMixed(s *suite) {
	good := s.bring(message("mixed", "good"), halfmsg.Sendable)
	lost := s.bring(message("mixed", "lost"), halfmsg.Sendable)
	lost.Token = "other/1"
	wrong := s.bring(message("mixed", "wrong"), halfmsg.Pending)
	done := s.bring(message("mixed", "done"), halfmsg.Done)
	rolled := s.bring(message("other", "rolled"), halfmsg.Pending)
	unknown := s.bring(message("other", "unknown"), halfmsg.Pending)
	never := halfmsg.Claim{Message: message("mixed", "never"), Token: "x/1"}
	rows := []struct {
		claim halfmsg.Claim
		event halfmsg.Event
		state halfmsg.State
		err   error
	}{
		{good, halfmsg.EventAcked, halfmsg.Done, nil},
		{lost, halfmsg.EventAcked, halfmsg.Sendable, halfmsg.ErrLeaseLost},
		{wrong, halfmsg.EventAcked, halfmsg.Pending, halfmsg.ErrIllegal},
		{done, halfmsg.EventAcked, halfmsg.Done, nil},
		{rolled, halfmsg.EventRolledBack, halfmsg.RolledBack, nil},
		{unknown, halfmsg.EventUnknown, halfmsg.Pending, nil},
		{never, halfmsg.EventCommitted, halfmsg.None, halfmsg.ErrLeaseLost},
	}
	var batch []halfmsg.Settlement
	for _, row := range rows {
		batch = append(
			batch,
			halfmsg.Settlement{Name: row.claim.Name, Token: row.claim.Token, Event: row.event, After: time.Hour},
		)
	}
	for i, r := range s.Store.Settle(s.Context(), batch) {
		if r.State != rows[i].state || !errors.Is(r.Err, rows[i].err) {
			s.Errorf("%s on %s: got %s, %v; want %s, %v", rows[i].event, rows[i].claim.Name, r.State, r.Err, rows[i].state,
				rows[i].err)
		}
	}
}

// settleTwice repeats settlements whose answers were lost.
func settleTwice(s *suite) {
	claim := s.bring(message("twice", "1"), halfmsg.Pending)
	for range 3 {
		if got := s.settleClaim(claim, halfmsg.EventCommitted, holding(long)); got != halfmsg.Sendable {
			s.Fatalf("committed: %s", got)
		}
	}
	for range 3 {
		if got := s.settleClaim(claim, halfmsg.EventAcked); got != halfmsg.Done {
			s.Fatalf("acked: %s", got)
		}
	}
	if r := s.word(claim, halfmsg.EventRolledBack); r.State != halfmsg.Done || !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		s.Errorf("a contradicting verdict: %s, %v", r.State, r.Err)
	}
	claim = s.bring(message("twice", "2"), halfmsg.Pending)
	s.settleClaim(claim, halfmsg.EventUnknown, after(time.Hour))
	if r := s.word(claim, halfmsg.EventUnknown); !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		s.Errorf("a word repeated without the lease: %s, %v", r.State, r.Err)
	}
	if r := s.get(claim.Name); r.ConfirmAttempts != 1 {
		s.Errorf("counted %d times", r.ConfirmAttempts)
	}
}

// settleInOneBatch moves messages twice in a single batch.
func settleInOneBatch(s *suite) {
	all := messages("orders", 40)
	s.create(all...)
	claims := s.submit(long, names(all)...)
	var batch []halfmsg.Settlement
	for _, event := range []halfmsg.Event{halfmsg.EventCommitted, halfmsg.EventAcked} {
		for _, claim := range claims {
			settlement := halfmsg.Settlement{Name: claim.Name, Token: claim.Token, Event: event}
			if event == halfmsg.EventCommitted {
				settlement.Hold = long
			}
			batch = append(batch, settlement)
		}
	}
	for i, r := range s.Store.Settle(s.Context(), batch) {
		if want, _ := halfmsg.Next(halfmsg.Sendable, halfmsg.EventAcked); r.Err != nil || i >= len(all) && r.State != want {
			s.Fatalf("item %d: %s, %v", i, r.State, r.Err)
		}
	}
}

// attempts follows the counters and causes of a message through its whole life.
func attempts(s *suite) {
	m := message("counts", "1")
	claim := s.bring(m, halfmsg.Pending)
	again := func() { claim = s.submit(long, m.Name)[0] }
	s.settleClaim(claim, halfmsg.EventUnknown, because("still running"))
	again()
	s.settleClaim(claim, halfmsg.EventUnreachable, because("away"))
	again()
	s.settleClaim(claim, halfmsg.EventReleased)
	again()
	if claim.ConfirmAttempts != 1 || claim.Copies != 0 || !claim.SendableAt.IsZero() {
		s.Errorf("after a single UNKNOWN: %+v", claim)
	}
	if r := s.get(m.Name); r.LastError != "away" {
		s.Errorf("last error %q", r.LastError)
	}
	s.settleClaim(claim, halfmsg.EventCommitted)
	resend := func() { claim = s.claimSendable(1, long)[0] }
	resend()
	if claim.SendableAt.IsZero() {
		s.Error("no time at which the message became sendable")
	}
	sendable := claim.SendableAt
	s.settleClaim(claim, halfmsg.EventRefused, because(strings.Repeat("ü", 2*halfmsg.MaxCause)))
	resend()
	s.settleClaim(claim, halfmsg.EventUnsure)
	resend()
	s.settleClaim(claim, halfmsg.EventReleased)
	resend()
	if claim.PublishAttempts != 1 || claim.Copies != 2 {
		s.Errorf("after a refusal and an unsure outcome: %d attempts, %d copies", claim.PublishAttempts, claim.Copies)
	}
	s.settleClaim(claim, halfmsg.EventExhausted)
	if r := s.get(m.Name); r.PublishAttempts != 2 || len([]rune(r.LastError)) != halfmsg.MaxCause {
		s.Errorf("dead after %d attempts with a cause of %d characters", r.PublishAttempts, len([]rune(r.LastError)))
	}
	if r := s.Store.Retry(s.Context(), []halfmsg.Name{m.Name}, "", "")[0]; r.State != halfmsg.Sendable || r.Err != nil {
		s.Fatalf("retry: %v, %v", r.State, r.Err)
	}
	resend()
	if claim.PublishAttempts != 0 || claim.Copies != 3 || !claim.SendableAt.Equal(sendable) {
		s.Errorf("after a retry: %d attempts, %d copies, sendable since %v, before %v", claim.PublishAttempts,
			claim.Copies, claim.SendableAt, sendable)
	}
}
