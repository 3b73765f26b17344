// Command simulate runs the simulation with many seeds, each in a process of its own, until one fails. It says then how
// the run is repeated, shrinks it, and prints a row for the kept runs in test/simulation/found_test.go.
//
//	make simulate MINUTES=30 SEED=1
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/msghandler/msghandler/test/defects"
	"github.com/msghandler/msghandler/test/simulation/replay"
)

var (
	minutes   = flag.Float64("minutes", 10, "how long new runs are begun")
	runs      = flag.Int("runs", 0, "how many runs there are at most; 0: as many as the minutes allow")
	seed      = flag.Uint64("seed", 1, "the seed of the first run; each run has the next one")
	small     = flag.Bool("small", false, "run small worlds, in which little happens")
	complete  = flag.Bool("complete", false, "fail when the runs together miss a member of the coverage")
	plan      = flag.String("plan", "", "run this plan alone, in JSON, instead of seeds")
	again     = flag.Int("again", 10, "how many times a failing run, or the plan, is repeated")
	tries     = flag.Int("tries", 3, "how many orders of goroutines a shrunk run is tried with")
	shrunk    = flag.Int("shrink", 300, "how many runs shrinking may take")
	shrinking = flag.Float64("shrink-minutes", 25, "how long shrinking may take")
	defect    = flag.String("defect", "", "a defect of test/defects to plant, which the runs must find")
	dir       = flag.String("dir", ".cache/simulate", "where the program is built and logs are written")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	green, err := simulate(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
	}
	if err != nil || !green {
		stop()
		os.Exit(1)
	}
}

func simulate(ctx context.Context) (green bool, err error) {
	at, err := filepath.Abs(filepath.Join(*dir, *defect))
	if err != nil {
		return false, err
	}
	changed, err := plantDefect(filepath.Join(at, "defect"))
	if err != nil {
		return false, err
	}
	begun := time.Now()
	program, err := replay.Build(ctx, at, "./test/simulation", changed)
	if err != nil {
		return false, err
	}
	fmt.Printf("built in %v\n", time.Since(begun).Round(time.Second))
	if *plan != "" {
		return repeatPlan(ctx, program)
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(*minutes*float64(time.Minute)))
	defer cancel()
	begun = time.Now()
	kinds, covered := map[string]int{}, map[string]int{}
	found, sum, err := program.Search(limited, replay.Plan{Seed: *seed, Small: *small}, *runs, func(o replay.Outcome) {
		for _, kind := range o.Kinds {
			kinds[kind]++
		}
		for member, n := range o.Coverage {
			covered[member] += n
		}
	})
	report(sum, kinds, time.Since(begun))
	switch {
	case err != nil:
		return false, err
	case found != nil:
		return false, tell(ctx, program, *found)
	}
	return judgeCoverage(ctx, program, covered)
}

// judgeCoverage prints what the runs together have missed.
func judgeCoverage(ctx context.Context, program replay.Program, covered map[string]int) (green bool, err error) {
	text, err := json.Marshal(covered)
	if err != nil {
		return false, err
	}
	path := filepath.Join(filepath.Dir(program.Path), "coverage.json")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return false, err
	}
	judge := exec.CommandContext(ctx, program.Path, "-test.run=^TestCovered$", "-test.v", "-covered="+path)
	judge.Dir, judge.Stdout, judge.Stderr = program.Dir, os.Stdout, os.Stderr
	missed := judge.Run()
	return missed == nil || !*complete, nil
}

// plantDefect writes the files that the defect changes.
func plantDefect(dir string) (changed map[string]string, err error) {
	if *defect == "" {
		return nil, nil
	}
	planted, err := defects.Named(*defect)
	if err != nil {
		return nil, err
	}
	return planted.Write(".", dir)
}

// report prints the figures of the runs.
func report(s replay.Sum, kinds map[string]int, took time.Duration) {
	if s.Runs == 0 {
		fmt.Println("no run ended")
		return
	}
	fmt.Printf("%d runs from seed %d in %v: %d events, %d messages, %.0f simulated hours, %v CPU\n",
		s.Runs, *seed, took.Round(time.Second), s.Events, s.Messages, s.Simulated.Hours(), s.CPU.Round(time.Second))
	fmt.Printf("%.0f simulated hours in an hour of CPU; %.2f s of CPU a run\n",
		s.Simulated.Hours()/s.CPU.Hours(), s.CPU.Seconds()/float64(s.Runs))
	var names []string
	for kind, n := range kinds {
		names = append(names, fmt.Sprintf("%s %d", kind, n))
	}
	slices.Sort(names)
	fmt.Println("runs with each fault:", strings.Join(names, ", "))
}

// tell says what failed, how it is repeated, and what is left of it after shrinking.
func tell(ctx context.Context, program replay.Program, f replay.Found) error {
	fmt.Printf("\nSEED %d FAILS:\n", f.Plan.Seed)
	printWrong(f.Outcome)
	if err := keepLog(f); err != nil {
		return err
	}
	fmt.Printf("again: make simulate SEED=%d RUNS=1%s\n", f.Plan.Seed, map[bool]string{true: " SMALL=yes"}[f.Plan.Small])
	failed, equal, err := repeat(ctx, program, f.Plan, *again)
	if err != nil {
		return err
	}
	fmt.Printf("it fails again in %d of %d repetitions; %d have the same events\n", failed, *again, equal)
	shrinker := replay.Shrinker{
		Tries: *tries, Runs: *shrunk, Say: func(line string) { fmt.Println(line) },
		Play: func(ctx context.Context, p replay.Plan) (replay.Outcome, error) {
			o, _, err := program.Play(ctx, p)
			return o, err
		},
	}
	limited, cancel := context.WithTimeout(ctx, time.Duration(*shrinking*float64(time.Minute)))
	defer cancel()
	small, outcome := shrinker.Shrink(limited, f.Plan, f.Outcome)
	fmt.Printf("\nshrunk from %d kinds of faults, %d faults and %d messages to %d, %d and %d:\n", len(f.Outcome.Kinds),
		len(f.Outcome.Strikes), f.Outcome.Messages, len(outcome.Kinds), len(outcome.Strikes), outcome.Messages)
	printWrong(outcome)
	fmt.Printf("\nAdd this to the kept runs in test/simulation/found_test.go:\n\n%s", small.Row(*defect, outcome))
	return errors.New("a run failed")
}

func printWrong(o replay.Outcome) {
	const some = 10
	for _, w := range o.Wrong[:min(some, len(o.Wrong))] {
		fmt.Println("  ", w)
	}
	if more := len(o.Wrong) - some; more > 0 {
		fmt.Printf("   and %d more\n", more)
	}
}

func keepLog(f replay.Found) error {
	path := filepath.Join(*dir, *defect, fmt.Sprintf("seed-%d.log", f.Plan.Seed))
	fmt.Println("log:", path)
	return os.WriteFile(path, []byte(f.Outcome.Log), 0o600)
}

// repeat runs a plan again, and counts the failing runs and those with the events of most runs.
func repeat(ctx context.Context, program replay.Program, p replay.Plan, times int) (failed, equal int, err error) {
	traces := map[uint64]int{}
	for range times {
		o, _, err := program.Play(ctx, p)
		if err != nil {
			return 0, 0, err
		}
		if len(o.Wrong) > 0 {
			failed++
		}
		traces[o.Trace]++
		equal = max(equal, traces[o.Trace])
	}
	return failed, equal, nil
}

func repeatPlan(ctx context.Context, program replay.Program) (green bool, err error) {
	var p replay.Plan
	if err := json.Unmarshal([]byte(*plan), &p); err != nil {
		return false, fmt.Errorf("read the plan: %w", err)
	}
	failed, equal, err := repeat(ctx, program, p, *again)
	fmt.Printf("%d of %d runs fail; %d have the same events\n", failed, *again, equal)
	return failed == 0, err
}
