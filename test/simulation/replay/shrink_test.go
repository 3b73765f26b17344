package replay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// defective plays a world of 40 faults of three kinds and 30 messages, which loses a message when two of the faults
// happen and there are at least five messages, in every second order of goroutines only.
func defective(_ context.Context, p Plan) (Outcome, error) {
	o := Outcome{Messages: 30}
	if p.Messages > 0 {
		o.Messages = p.Messages
	}
	for _, kind := range []string{"cuts", "delays", "kills"} {
		if slices.Contains(p.Without, kind) {
			continue
		}
		o.Kinds = append(o.Kinds, kind)
		for n := range 40 {
			if strike := fmt.Sprint(kind, n); p.Strikes == nil || slices.Contains(p.Strikes, strike) {
				o.Strikes = append(o.Strikes, strike)
			}
		}
	}
	both := slices.Contains(o.Strikes, "cuts7") && slices.Contains(o.Strikes, "kills31")
	if both && o.Messages >= 5 && p.Order%2 == 1 {
		o.Wrong = []string{"LOST x"}
	}
	return o, nil
}

// Of 120 faults and 30 messages shrinking leaves the two faults and the five messages that the defect needs.
func TestShrinkingLeavesWhatIsNeeded(t *testing.T) {
	t.Parallel()
	p := Plan{Seed: 3, Order: 3}
	failed, _ := defective(t.Context(), p)
	s := Shrinker{Play: defective, Tries: 3, Runs: 300}
	small, outcome := s.Shrink(t.Context(), p, failed)
	if got := strings.Join(small.Strikes, " "); got != "cuts7 kills31" {
		t.Errorf("faults that are left: %s", got)
	}
	if outcome.Messages != 5 || small.Nodes != 1 || !slices.Equal(small.Without, []string{"delays"}) {
		t.Errorf("the plan that is left: %v", small)
	}
	again, _ := defective(t.Context(), small)
	if len(again.Wrong) == 0 {
		t.Errorf("%v does not fail", small)
	}
	want := `{defect: "both", verdict: "LOST", plan: replay.Plan{Seed: 3,`
	if row := small.Row("both", outcome); !strings.Contains(row, want) {
		t.Errorf("the row is %s", row)
	}
}

// Another defect than the one that was found counts for nothing.
func TestShrinkingKeepsTheVerdict(t *testing.T) {
	t.Parallel()
	s := Shrinker{Tries: 1, Runs: 50, Play: func(context.Context, Plan) (Outcome, error) {
		return Outcome{Wrong: []string{"STUCK y"}}, nil
	}}
	found := Outcome{Wrong: []string{"LOST x"}, Kinds: []string{"cuts"}, Strikes: []string{"cuts1"}, Messages: 4}
	small, outcome := s.Shrink(t.Context(), Plan{Seed: 1}, found)
	if len(small.Without) > 0 || outcome.Wrong[0] != "LOST x" {
		t.Errorf("%v fails with %v", small, outcome.Wrong)
	}
}
