package halfmsg_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

//go:generate go test -vet=off -run TestTheStateMachinePageIsFresh -update .

var update = flag.Bool("update", false, "write docs/reference/state-machine.md anew")

const statePage = "../../docs/reference/state-machine.md"

func TestTheStateMachinePageIsFresh(t *testing.T) {
	want := stateMachinePage()
	if *update {
		must.Succeed(t, os.WriteFile(statePage, []byte(want), 0o600))
	}
	got, err := os.ReadFile(statePage)
	must.Succeed(t, err)
	if string(got) != want {
		t.Error("docs/reference/state-machine.md differs from the table in internal/halfmsg/state.go; run: make generate")
	}
}

func stateMachinePage() string {
	var b strings.Builder
	b.WriteString(`# The state machine

This page is made from the table in ` + "`internal/halfmsg/state.go`" + ` by ` +
		"`make generate`" + `; a test fails when they differ.
Every move that the table does not list is refused and leaves the record as it was.

` + "```mermaid\nstateDiagram-v2\n")
	for _, m := range halfmsg.Moves() {
		fmt.Fprintf(&b, "    %s --> %s: %s\n", node(m.From), node(m.To), m.Event)
	}
	b.WriteString("    done --> [*]\n    rolled_back --> [*]\n```\n\n")
	b.WriteString("| from | event | to | who may |\n|---|---|---|---|\n")
	for _, m := range halfmsg.Moves() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", m.From, m.Event, m.To, who(m.Event))
	}
	b.WriteString("\n## The events\n\n| event | what happened |\n|---|---|\n")
	for _, e := range halfmsg.Events() {
		fmt.Fprintf(&b, "| %s | %s |\n", e, eventMeanings[e])
	}
	return b.String()
}

func node(s halfmsg.State) string {
	if s == halfmsg.None {
		return "[*]"
	}
	return s.String()
}

func who(e halfmsg.Event) string {
	if e.NeedsLease() {
		return "the holder of the lease"
	}
	return "any caller"
}

var eventMeanings = map[halfmsg.Event]string{
	halfmsg.EventSend:   "SendHalfMessage",
	halfmsg.EventSubmit: "Submit: due now; an abandoned message is confirmed again",
	halfmsg.EventSubmitTrusted: "Submit of a producer that `submit.trust` trusts: the verdict COMMITTED, " +
		"also while another owner holds the lease",
	halfmsg.EventRollback:      "the producer's Rollback",
	halfmsg.EventCommitted:     "the producer's verdict COMMITTED",
	halfmsg.EventRolledBack:    "the producer's verdict ROLLED_BACK",
	halfmsg.EventUnknown:       "the producer answered UNKNOWN; a used confirm attempt",
	halfmsg.EventUnreachable:   "the producer gave no answer; no used attempt",
	halfmsg.EventGivenUp:       "UNKNOWN to the final question",
	halfmsg.EventTimedOut:      "no answer, and `confirm.give_up_after` has passed; no used attempt",
	halfmsg.EventAcked:         "the broker acknowledged the message and had routed it",
	halfmsg.EventAckedMarked:   "the same with `delete_business.when: after_ack`: the business marker is deleted only now",
	halfmsg.EventRefused:       "nacked, returned as unroutable, or refused by the broker; a used publish attempt",
	halfmsg.EventUnsure:        "published, and the answer was lost: a copy may be out; no used attempt",
	halfmsg.EventExhausted:     "the last refusal",
	halfmsg.EventMarkerDeleted: "the producer has deleted its business marker",
	halfmsg.EventMarkerKept:    "a DeleteBusiness failed; a used deletion attempt",
	halfmsg.EventMarkerLeft:    "the last attempt failed: the marker is left to the producer's own clean-up",
	halfmsg.EventReleased:      "handed back by an owner that did nothing with it",
	halfmsg.EventRetry:         "an operator's retry: due now, attempts back at zero",
	halfmsg.EventDiscard:       "an operator's discard",
	halfmsg.EventReplay: "an operator's replay of a message whose verdict was committed: a copy from the " +
		"[archive](../run/message.md#history-and-archive) takes the place of the receipt",
}
