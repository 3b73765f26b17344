package simulation

import (
	"flag"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/checks"
)

var (
	seed      = flag.Uint64("seed", 1, "the seed of the first run")
	runs      = flag.Int("runs", 3, "how many runs of TestSimulation there are, each with the next seed")
	smallRuns = flag.Int("small", 700, "how many runs of TestSmallWorlds there are, each with the next seed")
	only      = flag.String("only", "", "the names of the faults that may happen, separated by commas; empty: all")
	showLog   = flag.Bool("log", false, "write all log lines of the runs to standard error")
)

// Under all faults that a seed draws, each committed message arrives, nothing else does, and everything becomes final.
func TestSimulation(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // a run has a small heap, and leaves much behind
	playSeeds(t, *runs, Options{})
}

// In many worlds in which little happens, with faults in other places each time, the same holds.
func TestSmallWorlds(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // what a world leaves behind is collected after it
	playSeeds(t, *smallRuns, Options{Small: true})
}

// playSeeds plays worlds one after the other.
func playSeeds(t *testing.T, worlds int, o Options) {
	t.Helper()
	begun, used := time.Now(), cpu()
	var simulated time.Duration
	events, covered := 0, checks.NewCoverage()
	if *only != "" {
		o.Only = strings.Split(*only, ",")
	}
	if *showLog {
		o.Log = os.Stderr
	}
	for i := range worlds {
		before := cpu()
		r := Run(t, *seed+uint64(i), o)
		simulated += r.Simulated
		covered.Add(r.Coverage)
		events += r.Events
		if !o.Small || len(r.Wrong) > 0 {
			t.Logf("seed %d, %d times as long: %d events, %d messages, %d copies, %v simulated, %v CPU, faults %v",
				r.Seed, r.Times, r.Events, r.Messages, r.Copies, r.Simulated.Round(time.Second),
				(cpu() - before).Round(10*time.Millisecond), r.Faults)
		}
		for _, wrong := range r.Wrong {
			t.Errorf("seed %d, small %t: %s", r.Seed, o.Small, wrong)
		}
		if len(r.Wrong) > 0 {
			t.Log(r.Log)
		}
	}
	reportCoverage(t, covered, false)
	took := cpu() - used
	t.Logf("%d runs, %d events, %v simulated in %v and %v CPU: %.0f simulated hours in an hour of CPU", worlds, events,
		simulated.Round(time.Second), time.Since(begun).Round(time.Millisecond), took.Round(time.Millisecond),
		simulated.Hours()/took.Hours())
}

// cpu is what this process has used.
func cpu() time.Duration {
	var used syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &used) // it never fails for RUSAGE_SELF
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
