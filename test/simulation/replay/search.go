package replay

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// Found is a failing run.
type Found struct {
	Plan    Plan
	Outcome Outcome
}

// Sum is what many runs came to.
type Sum struct {
	Runs, Events, Messages int
	// Simulated is by the clocks of the bubbles, and CPU what the processes used.
	Simulated, CPU time.Duration
}

// Search runs a plan with its seed and the following ones, on all processors, until a run fails, so many seeds were
// run, or ctx ends. runs 0 is no bound. err says that a run could not be made.
func (p Program) Search(
	ctx context.Context, first Plan, runs int, did func(Outcome),
) (found *Found, s Sum, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	next := first.Seed
	take := func() (uint64, bool) {
		mu.Lock()
		defer mu.Unlock()
		if found != nil || err != nil || ctx.Err() != nil || runs > 0 && next-first.Seed >= uint64(runs) {
			return 0, false
		}
		next++
		return next - 1, true
	}
	note := func(plan Plan, o Outcome, cpu time.Duration, failed error) {
		mu.Lock()
		defer mu.Unlock()
		if failed != nil {
			if ctx.Err() == nil {
				err = failed
				stop()
			}
			return
		}
		s.Runs, s.Events, s.Messages = s.Runs+1, s.Events+o.Events, s.Messages+o.Messages
		s.Simulated, s.CPU = s.Simulated+o.Simulated, s.CPU+cpu
		did(o)
		if len(o.Wrong) > 0 && (found == nil || plan.Seed < found.Plan.Seed) {
			found = &Found{plan, o}
			stop()
		}
	}
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for seed, more := take(); more; seed, more = take() {
				plan := first
				plan.Seed = seed
				o, cpu, failed := p.Play(ctx, plan)
				note(plan, o, cpu, failed)
			}
		})
	}
	workers.Wait()
	return found, s, err
}
