package halfmsg_test

import (
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

func TestEveryMoveIsInTableOnce(t *testing.T) {
	seen := map[[2]uint8]bool{}
	for _, m := range halfmsg.Moves() {
		key := [2]uint8{uint8(m.From), uint8(m.Event)}
		if seen[key] {
			t.Errorf("%s on %s stands twice", m.Event, m.From)
		}
		seen[key] = true
		if m.From.Final() {
			t.Errorf("%s leaves the final state %s", m.Event, m.From)
		}
	}
}

func TestOnlyACommittedVerdictMakesSendable(t *testing.T) {
	for _, m := range halfmsg.Moves() {
		// A store replays only what the archive has with a committed verdict: TestReplayIsRefused.
		verdict := m.Event == halfmsg.EventCommitted || m.Event == halfmsg.EventSubmitTrusted ||
			m.Event == halfmsg.EventReplay
		if m.To == halfmsg.Sendable && m.From != halfmsg.Sendable && m.From != halfmsg.Dead && !verdict {
			t.Errorf("%s leads from %s to sendable", m.Event, m.From)
		}
	}
}

func TestCommittedMessageIsNeverForgottenUnsent(t *testing.T) {
	for _, m := range halfmsg.Moves() {
		acked := m.Event == halfmsg.EventAcked || m.Event == halfmsg.EventAckedMarked
		if m.From == halfmsg.Sendable && m.To != halfmsg.Sendable && m.To != halfmsg.Dead && !acked {
			t.Errorf("%s takes a sendable message to %s", m.Event, m.To)
		}
	}
}

// An acknowledged message has no content any more, so there is no way back to where it would be published.
func TestAcknowledgedMessageIsNotPublishedAgain(t *testing.T) {
	for _, m := range halfmsg.Moves() {
		if m.From == halfmsg.Acknowledged && m.To != halfmsg.Acknowledged && m.To != halfmsg.Done {
			t.Errorf("%s takes an acknowledged message to %s", m.Event, m.To)
		}
		if m.To == halfmsg.Acknowledged && m.From != halfmsg.Acknowledged && m.Event != halfmsg.EventAckedMarked {
			t.Errorf("%s takes a %s message to acknowledged", m.Event, m.From)
		}
	}
}

func TestNamesRoundTrip(t *testing.T) {
	for _, s := range halfmsg.States() {
		if got, err := halfmsg.ParseState(s.String()); err != nil || got != s {
			t.Errorf("%s came back as %v, %v", s, got, err)
		}
	}
	if n, err := halfmsg.ParseName("orders/a/b"); err != nil || n.Producer != "orders" || n.ID != "a/b" {
		t.Errorf("got %v, %v", n, err)
	}
	for _, bad := range []string{"", "orders", "/1", "orders/"} {
		if _, err := halfmsg.ParseName(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
