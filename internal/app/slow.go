package app

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/operate"
	"github.com/msghandler/msghandler/internal/slowness"
)

// slowSchedule is how often the coordinator looks for what is slow.
var slowSchedule = "@every " + slowness.Interval.String()

// mostlyThrottled is the share of periods from which the CPU limit is why a coordinator runs late.
const mostlyThrottled = .25

// slow knows what is slow, though nothing fails.
type slow struct {
	lateness slowness.Lateness
	watch    slowness.Watch
}

// slowCauses are the causes by what is slow.
var slowCauses = map[slowness.Kind]cause.Cause{
	slowness.Starved: cause.CoordinatorStarved,
	slowness.Redis:   cause.RedisSlow,
	slowness.Broker:  cause.BrokerSlow,
	slowness.Unknown: cause.ProducerUnknown,
	slowness.Errors:  cause.ProducerErrors,
	slowness.Runaway: cause.ProducerRunaway,
}

// watchSlowness starts the loop that looks for what is slow.
func (a *App) watchSlowness() error {
	a.metrics.Lateness(a.slow.lateness.Total)
	if !a.bounds.Unwatched {
		a.serve("lateness", func() error {
			a.slow.lateness.Run(a.life)
			return nil
		})
	}
	return a.repeat("slowness", slowSchedule, func(context.Context) error {
		now := time.Now()
		a.slow.watch.Observe(a.measured(now), now)
		return nil
	})
}

// subjectOf is the part that is slow.
func subjectOf(one slowness.Slow) string {
	switch one.Kind {
	case slowness.Starved:
		return "process"
	case slowness.Redis:
		return checkRedis
	case slowness.Broker:
		return cause.BrokerSubject(one.Name)
	case slowness.Unknown, slowness.Errors, slowness.Runaway:
	}
	return one.Name
}

// measured is what the coordinator has measured up to now.
func (a *App) measured(now time.Time) slowness.Measured {
	m := slowness.Measured{
		Late: a.slow.lateness.Total(), Producers: a.peers.Sums(now).Producers(), Limited: a.reloader.policies.BoundsRate,
	}
	m.Periods, m.Throttled = slowness.Throttling()
	m.Redis, m.Brokers = a.metrics.Latencies()
	return m
}

// slow reports what is slow: producers, which all coordinators judge by the counts of all, or what this coordinator
// measures.
func (f *findings) slow(all []slowness.Slow, producers bool) {
	for _, s := range all {
		if s.OfProducer() != producers {
			continue
		}
		is, what := slowCauses[s.Kind], ""
		switch s.Kind {
		case slowness.Starved:
			if s.Throttled >= mostlyThrottled {
				is = cause.CoordinatorThrottled
			}
			what = fmt.Sprintf("the coordinator runs late: it did not run in %.0f %% of the time", 100*s.Value)
		case slowness.Redis:
			what = "Redis is slow: half of the scripts take " + compared(s, duration)
		case slowness.Broker:
			is = is.About(cause.Part{Name: s.Name, Key: keyOfBroker(s.Name)})
			what = fmt.Sprintf("broker %s is slow: half of the acknowledgements take %s", cmp.Or(s.Name, "(default)"),
				compared(s, duration))
		case slowness.Unknown:
			what = fmt.Sprintf("producer %s does not know its messages: UNKNOWN among its answers is %s", s.Name,
				compared(s, percent))
		case slowness.Errors:
			what = fmt.Sprintf("producer %s fails: errors among its answers are %s", s.Name, compared(s, percent))
		case slowness.Runaway:
			what = fmt.Sprintf("producer %s sends %s", s.Name, compared(s, perSecond))
		}
		if producers {
			is = is.About(cause.Part{Name: s.Name})
		}
		p := f.add(warning, is.Name, what, is.Why, is.Remedy)
		p.Subject, p.Since = subjectOf(s), s.Since
	}
}

// compared is a value, and what is usual if that is known.
func compared(s slowness.Slow, write func(float64) string) string {
	if s.Usual == 0 {
		return write(s.Value)
	}
	return write(s.Value) + ", usually up to " + write(s.Usual)
}

// duration is at least a millisecond: a Redis nearby usually takes less.
func duration(seconds float64) string {
	return operate.Duration(max(time.Millisecond, time.Duration(seconds*float64(time.Second))))
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

func perSecond(rate float64) string { return fmt.Sprintf("%.0f half messages a second", max(1, rate)) }
