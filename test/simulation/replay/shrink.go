package replay

import (
	"context"
	"fmt"
	"slices"
)

// Shrinker makes a failing plan smaller while it still fails.
type Shrinker struct {
	// Play runs a plan.
	Play func(ctx context.Context, p Plan) (Outcome, error)
	// Tries is how many orders of goroutines a smaller plan is tried with: another plan has another order anyway.
	Tries int
	// Runs bounds the runs of all tries.
	Runs int
	// Say gets a line for each step. May be nil.
	Say func(line string)

	wrong []string
}

// Shrink returns the smallest plan that it finds to fail with a verdict of the failed outcome, and its outcome. Shrink
// leaves out kinds of faults, coordinators, messages, and single faults, in this order.
func (s *Shrinker) Shrink(ctx context.Context, p Plan, failed Outcome) (Plan, Outcome) {
	s.wrong = Verdicts(failed.Wrong)
	if p.Order == 0 {
		p.Order = p.Seed
	}
	for _, kind := range failed.Kinds {
		smaller := p
		smaller.Without = append(slices.Clone(p.Without), kind)
		s.try(ctx, "without "+kind, smaller, &p, &failed)
	}
	for nodes := 1; nodes < 3 && p.Nodes == 0; nodes++ {
		smaller := p
		smaller.Nodes = nodes
		s.try(ctx, fmt.Sprintf("%d coordinators", nodes), smaller, &p, &failed)
	}
	s.lessMessages(ctx, &p, &failed)
	s.fewerStrikes(ctx, &p, &failed)
	return p, failed
}

// lessMessages halves the number of messages while the plan fails, and then takes one away at a time.
func (s *Shrinker) lessMessages(ctx context.Context, p *Plan, failed *Outcome) {
	for step := failed.Messages / 2; step > 0; {
		smaller := *p
		smaller.Messages = failed.Messages - step
		if smaller.Messages < 1 || !s.try(ctx, fmt.Sprintf("%d messages", smaller.Messages), smaller, p, failed) {
			step /= 2
		}
		step = min(step, failed.Messages-1)
	}
}

// fewerStrikes leaves out halves, quarters and so on of the single faults, as delta debugging does.
func (s *Shrinker) fewerStrikes(ctx context.Context, p *Plan, failed *Outcome) {
	for parts := 1; ; {
		strikes := failed.Strikes
		size := (len(strikes) + parts - 1) / parts
		if size == 0 || s.Runs <= 0 {
			break
		}
		shorter := false
		for begin := 0; begin < len(strikes) && !shorter; begin += size {
			smaller := *p
			smaller.Strikes = append(append([]string{}, strikes[:begin]...), strikes[min(begin+size, len(strikes)):]...)
			shorter = s.try(ctx, fmt.Sprintf("%d of %d faults", len(smaller.Strikes), len(strikes)), smaller, p, failed)
		}
		switch {
		case shorter:
			parts = max(parts-1, 1)
		case size == 1:
			return
		default:
			parts = min(2*parts, len(strikes))
		}
	}
}

// try takes a smaller plan when it fails in the same way.
func (s *Shrinker) try(ctx context.Context, what string, smaller Plan, p *Plan, failed *Outcome) bool {
	for order := range uint64(s.Tries) {
		if s.Runs--; s.Runs < 0 || ctx.Err() != nil {
			return false
		}
		smaller.Order = p.Order + order
		outcome, err := s.Play(ctx, smaller)
		if err != nil || !slices.ContainsFunc(Verdicts(outcome.Wrong), s.same) {
			continue
		}
		*p, *failed = smaller, outcome
		if s.Say != nil {
			s.Say(fmt.Sprintf("fails too: %s, order %d: %s", what, smaller.Order, outcome.Wrong[0]))
		}
		return true
	}
	return false
}

func (s *Shrinker) same(verdict string) bool { return slices.Contains(s.wrong, verdict) }
