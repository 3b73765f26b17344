package storetest

import (
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// timeLimit: a pass learns the age of a message by the store's clock, and a message that is given up for its age waits
// for an operator or a Submit, with its attempts as they were.
func timeLimit(s *suite) {
	m := message("limits", "1")
	m.ConfirmAfter = short
	s.create(m)
	var claims []halfmsg.Claim
	s.passes(short, "the message is due", func() bool {
		claims = s.claimPending("limits", 1, long)
		return len(claims) == 1
	})
	claim := claims[0]
	if age := claim.ClaimedAt.Sub(claim.CreatedAt); age < short || age > patience+short {
		s.Errorf("claimed at an age of %v, want at least %v", age, short)
	}
	if created := s.get(m.Name).CreatedAt; !created.Equal(claim.CreatedAt) {
		s.Errorf("created at %v, the claim says %v", created, claim.CreatedAt)
	}
	const cause = "the limit has passed: connection refused"
	s.settleClaim(claim, halfmsg.EventTimedOut, because(cause))
	r := s.get(m.Name)
	if r.State != halfmsg.Abandoned || r.ConfirmAttempts != 0 || r.LastError != cause {
		s.Errorf("%s after %d attempts, %q", r.State, r.ConfirmAttempts, r.LastError)
	}
	s.tells(m.Name, "send", "timed_out: "+cause)
	if again := s.claimPending("limits", 1, long); len(again) != 0 {
		s.Error("a pass claims an abandoned message")
	}
	claim = s.submit(long, m.Name)[0]
	if got := s.settleClaim(claim, halfmsg.EventCommitted, after(time.Hour)); got != halfmsg.Sendable {
		s.Errorf("committed late: %s", got)
	}
}

// submitAtTheLimit: a Submit during the last call must not be lost.
func submitAtTheLimit(s *suite) {
	claim := s.bring(message("limits", "1"), halfmsg.Pending)
	s.Store.Submit(s.Context(), []halfmsg.Name{claim.Name}, long)
	if got := s.settleClaim(claim, halfmsg.EventTimedOut); got != halfmsg.Pending {
		s.Fatalf("given up: %s", got)
	}
	if again := s.claimPending("limits", 1, long); len(again) != 1 {
		s.Errorf("claimed %d at once", len(again))
	}
}
