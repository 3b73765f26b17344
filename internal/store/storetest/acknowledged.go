package storetest

import (
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// acknowledged follows a message from the acknowledgement to the deletion of its marker.
func acknowledged(s *suite) { s.deleteMarkerOf(`dns:///orders-\"1\".svc:9000`) }

// acknowledgedUntargeted: a message of a producer that attends, or has its target in the configuration, names none.
func acknowledgedUntargeted(s *suite) { s.deleteMarkerOf("") }

// deleteMarkerOf brings a message with such a target from the acknowledgement to the deletion of its marker. The
// content is dropped; the fields for the deletion stay until the marker is deleted.
func (s *suite) deleteMarkerOf(target string) {
	s.Helper()
	m := message("orders", "1")
	m.Headers["callback_target"] = `"callback_target":"elsewhere"`
	m.CallbackTarget = target
	claim := s.bring(m, halfmsg.Sendable)
	for range 2 { // its answer may be lost
		if got := s.settleClaim(claim, halfmsg.EventAckedMarked, holding(long)); got != halfmsg.Acknowledged {
			s.Fatalf("acknowledged: %s", got)
		}
	}
	created := s.get(m.Name).CreatedAt
	s.wantStripped(s.get(m.Name).Message, m)
	if others := append(s.claimSendable(1, long), s.claimAcknowledged(1, long)...); len(others) != 0 {
		s.Fatalf("another owner took a leased message: %+v", others)
	}

	s.settleClaim(claim, halfmsg.EventMarkerKept, because("away"))
	again := s.claimAcknowledged(1, long)[0]
	s.wantStripped(again.Message, m)
	if again.DeleteAttempts != 1 || again.State != halfmsg.Acknowledged {
		s.Errorf("after a single failure: %+v", again)
	}
	if r := s.word(claim, halfmsg.EventMarkerDeleted); !errors.Is(r.Err, halfmsg.ErrLeaseLost) ||
		r.State != halfmsg.Acknowledged {
		s.Errorf("the old owner's word: %v, %v", r.State, r.Err)
	}
	s.settleClaim(again, halfmsg.EventReleased, after(time.Hour))
	if r := s.get(m.Name); r.DeleteAttempts != 1 || r.LastError != "away" || !r.CreatedAt.Equal(created) {
		s.Errorf("handed back: %+v", r)
	}
	if r := s.Store.Retry(s.Context(), []halfmsg.Name{m.Name}, "", "")[0]; r.Err != nil ||
		r.State != halfmsg.Acknowledged {
		s.Fatalf("retry: %v, %v", r.State, r.Err)
	}
	again = s.claimAcknowledged(1, long)[0]
	if again.DeleteAttempts != 0 {
		s.Errorf("%d attempts after a retry", again.DeleteAttempts)
	}
	if got := s.settleClaim(again, halfmsg.EventMarkerDeleted); got != halfmsg.Done {
		s.Errorf("its marker is gone: %s", got)
	}
	if r := s.Store.Create(s.Context(), []halfmsg.Message{m})[0]; r.Err != nil || r.State != halfmsg.Done {
		s.Errorf("sent again: %v, %v", r.State, r.Err)
	}
}

// wantStripped wants the name, the target and the marker store, and nothing else of the content.
func (s *suite) wantStripped(got, of halfmsg.Message) {
	s.Helper()
	if got.Name != of.Name || got.CallbackTarget != of.CallbackTarget || got.MarkerStore != of.MarkerStore {
		s.Errorf("not enough to delete the marker: %+v", got)
	}
	if len(got.Body) > 0 || len(got.Headers) > 0 || got.Exchange != "" || got.RoutingKey != "" {
		s.Errorf("its content is still there: %+v", got)
	}
}

// acknowledgedOrphans: another owner continues the work of an owner that died.
func acknowledgedOrphans(s *suite) {
	all := append(messages("flood", 40), messages("small", 3)...)
	for i := range all {
		claim := s.bring(all[i], halfmsg.Sendable)
		s.settleClaim(claim, halfmsg.EventAckedMarked, holding(short))
	}
	count := map[string]int{}
	s.passes(short, "the leases end and another takes over", func() bool {
		for _, claim := range s.claimAcknowledged(10-count["flood"]-count["small"], long) {
			s.settleClaim(claim, halfmsg.EventMarkerDeleted)
			count[claim.Producer]++
		}
		return count["flood"]+count["small"] == 10
	})
	if count["small"] != 3 && s.Advance != nil {
		s.Errorf("10 were shared as %v", count)
	}
}

func (s *suite) claimAcknowledged(n int, lease time.Duration) []halfmsg.Claim {
	s.Helper()
	claims, err := s.Store.ClaimAcknowledged(s.Context(), n, lease)
	if err != nil {
		s.Fatalf("claim acknowledged: %v", err)
	}
	return claims
}
