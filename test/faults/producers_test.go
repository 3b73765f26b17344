package faults

import (
	"fmt"
	"testing"
)

// Faults of producers, and faults that hit producers.
var producerRows = []row{
	{name: "F01", leaves: true, fault: killProducers, judge: diedEverywhere},
	{name: "F01_http", leaves: true, fault: killProducersByHTTP, judge: diedEverywhere},
	{name: "F07", users: earlyUsers, fault: nothing, judge: sdkWasEarly},
	{name: "F08", users: racingUsers, fault: nothing, judge: bothRacesWereWon},
	{name: "F09", users: lateUsers, fault: nothing, judge: parkedAreCounted},
	{name: "F10", users: lyingUsers, fault: nothing, judge: liesWereHeard},
	{name: "F12", users: failingDeleters, fault: nothing, judge: leakedMarkersAreCounted},
	{name: "F20", users: stormingUsers, fault: nothing, judge: countedAsAnswered},
}

// refusals are the answers by which a caller learns that its call came at the wrong time.
var refusals = []struct{ call, code string }{
	{"Submit", "NotFound"},
	{"Submit", "FailedPrecondition"},
	{"Rollback", "FailedPrecondition"},
	{"SendHalfMessage", "AlreadyExists"},
}

// countedAsAnswered demands that the coordinators count every refusal of the producers without the SDK. The users of
// the row must have got refusals.
func countedAsAnswered(t *testing.T, w *world, l *load, _ End) {
	t.Helper()
	all := 0
	for _, r := range refusals {
		got := 0
		for _, u := range l.users {
			if p, ok := u.(interface{ answered(what string) int }); ok {
				got += p.answered(r.call + " " + r.code)
			}
		}
		counted := w.counted(fmt.Sprintf("msghandler_calls_total{code=%q,method=%q}", r.code, r.call))
		t.Logf("%s was answered %s %d times", r.call, r.code, got)
		if counted != got {
			t.Errorf("the coordinators count %d times: %s was answered %s; the callers count %d", counted, r.call, r.code, got)
		}
		all += got
	}
	if all < 20 {
		t.Errorf("only %d calls were refused: the row proves little", all)
	}
}

// sdkWasEarly demands that Submits of the SDK came before their half messages too.
func sdkWasEarly(t *testing.T, w *world, l *load, end End) {
	t.Helper()
	countedAsAnswered(t, w, l, end)
	early := w.counted(`msghandler_outcomes_total{code="NotFound",method="SubmitAll"}`)
	t.Logf("Submits of the SDK were answered NotFound %d times", early)
	if early == 0 {
		t.Error("no Submit of the SDK came before its half message")
	}
}
