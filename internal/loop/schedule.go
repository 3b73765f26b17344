package loop

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

// ParseSchedule checks a schedule for Config.Schedule. The error says what is wrong with the schedule.
func ParseSchedule(spec string) error {
	_, err := parse(spec)
	return err
}

// shortest is the shortest sensible interval: a loop with a shorter interval would be busy with empty passes.
const shortest = 10 * time.Millisecond

func parse(spec string) (cron.Schedule, error) {
	if interval, found := strings.CutPrefix(spec, "@every "); found {
		return parseInterval(spec, interval)
	}
	schedule, err := cron.ParseStandard(spec)
	if err != nil {
		return nil, fmt.Errorf("%q is neither a cron spec nor an interval such as @every 1s: %w", spec, err)
	}
	if schedule.Next(time.Now()).IsZero() {
		return nil, fmt.Errorf("%q never comes", spec)
	}
	return schedule, nil
}

func parseInterval(spec, interval string) (cron.Schedule, error) {
	d, err := time.ParseDuration(strings.TrimSpace(interval))
	if err != nil {
		return nil, fmt.Errorf("%q: %w", spec, err)
	}
	if d < shortest {
		return nil, fmt.Errorf("%q is too short; the shortest interval is %v", spec, shortest)
	}
	return every(d), nil
}

// every is an interval kept to the nanosecond; the cron library rounds to whole seconds.
type every time.Duration

// Next is the tick after t.
func (e every) Next(t time.Time) time.Time { return t.Add(time.Duration(e)) }
