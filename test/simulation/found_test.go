package simulation

import (
	"flag"
	"path/filepath"
	"slices"
	"testing"

	"github.com/msghandler/msghandler/test/defects"
	"github.com/msghandler/msghandler/test/simulation/replay"
)

var every = flag.Bool("every", false, "play all kept runs: each builds a program of its own")

// keptRun is a run that has failed once.
type keptRun struct {
	// defect is one of test/defects, which makes the run fail again. Without one the run has found a defect of the shipped
	// code, and is green since that was repaired.
	defect  string
	verdict string
	plan    replay.Plan
}

// moreSeeds is how many seeds from that of a kept run on may be tried: the order of a run changes with the code.
const moreSeeds = 12

// keptRuns are those that make simulate has printed. The page docs/evidence/simulation.md says what they cost.
var keptRuns = []keptRun{
	// LOST: committed, and never delivered
	{defect: "returns_ignored", verdict: "LOST", plan: replay.Plan{Seed: 6}},
	// LEASE: its leases contradict each other
	{defect: "trusted_submit_waits_for_the_lease", verdict: "LEASE", plan: replay.Plan{Seed: 3}},
}

// Each kept run fails again with its defect, so that worlds do not become too tame unseen, and is green without one.
func TestKeptRuns(t *testing.T) {
	for _, k := range keptRuns {
		if *every {
			t.Run(k.defect, func(t *testing.T) { playAgain(t, k) })
		}
	}
}

// playAgain plays a kept run in a program with its defect, until a run fails as the kept one did.
func playAgain(t *testing.T, k keptRun) {
	t.Helper()
	dir, planted := t.TempDir(), defects.Defect{}
	if k.defect != "" {
		var err error
		if planted, err = defects.Named(k.defect); err != nil {
			t.Fatal(err)
		}
	}
	changed, err := planted.Write("../..", filepath.Join(dir, "defect"))
	if err != nil {
		t.Fatal(err)
	}
	program, err := replay.Build(t.Context(), dir, ".", changed)
	if err != nil {
		t.Fatal(err)
	}
	for first := k.plan.Seed; k.plan.Seed < first+moreSeeds; k.plan.Seed++ {
		o, cpu, err := program.Play(t.Context(), k.plan)
		if err != nil {
			t.Fatal(err)
		}
		found := slices.Contains(replay.Verdicts(o.Wrong), k.verdict)
		t.Logf("seed %d, %v CPU: %q", k.plan.Seed, cpu, o.Wrong[:min(3, len(o.Wrong))])
		switch {
		case k.defect == "" && len(o.Wrong) > 0:
			t.Fatal("it fails again")
		case k.defect == "" || found:
			return
		}
	}
	t.Errorf("%d seeds have not found %s: the worlds are too tame", moreSeeds, k.verdict)
}
