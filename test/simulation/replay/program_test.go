package replay

import (
	"flag"
	"os"
	"os/signal"
	"strings"
	"testing"
	"time"
)

var planFlag = flag.String("plan", "", "the plan of TestPlan")

// TestPlan is what the process of TestHangingRunShowsItsStacks runs.
func TestPlan(*testing.T) {
	if *planFlag != "" {
		interrupted := make(chan os.Signal, 1) // nothing interrupts it
		signal.Notify(interrupted, os.Interrupt)
		<-interrupted
	}
}

// A run that hangs ends, and its log has the stacks.
func TestHangingRunShowsItsStacks(t *testing.T) {
	t.Parallel()
	itself, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const patience = 10 * time.Second // a busy machine begins the process in this time
	o, _, err := Program{Path: itself, Dir: ".", Patience: patience}.Play(t.Context(), Plan{Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Wrong) != 1 || !strings.HasPrefix(o.Wrong[0], "HANGS") || !strings.Contains(o.Log, "replay.TestPlan") {
		t.Errorf("a run that hangs has the defects %q, and the log %s", o.Wrong, o.Log)
	}
}
