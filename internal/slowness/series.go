package slowness

import (
	"math"
	"time"
)

const (
	// leastPast is how many minutes with values a past has before a value is compared with it.
	leastPast = 5
	// hold is how long a series stays slow after its last slow value, so that a finding does not flicker.
	hold = 30 * time.Second
	// silent is the part of the usual value below which a series is silent. catchUpTimes is how many times the usual value
	// is owed for a silence, because values are means over some time.
	silent, catchUpTimes = .05, 2
)

// rule says which values of a series are slow.
type rule struct {
	// floor is the least slow value, and times how many times the usual value a slow value is at least.
	floor, times float64
	// anyway is slow without a past, too. Zero: without a past nothing is slow.
	anyway float64
	// halfLife is the time in which the usual value halves while no value renews it.
	halfLife time.Duration
	// catchUp is the longest silence for which larger values may make up: what an outage has held up comes faster than
	// usual. Zero: none.
	catchUp time.Duration
}

// series is a value over time. What is usual is the largest value of a minute lately, so a past with peaks makes the
// rule patient. A value becomes usual once a whole minute after it is over and nothing was slow: what leads to an
// incident must not count.
type series struct {
	usual   float64
	renewed time.Time
	// minutes is how many minutes had values.
	minutes int
	// present and last are minutes that are not usual yet. present begins at begun.
	present, last minute
	begun         time.Time

	// slowSince is when the first slow value came, slowAt when the latest came, and value the latest.
	slowSince, slowAt time.Time
	value             float64
	observedAt        time.Time
	// knownAt is when the series last had a value.
	knownAt time.Time
	// owed is what a silence has held up, the value times seconds.
	owed float64
}

// minute has the largest value of a minute.
type minute struct {
	peak  float64
	known bool
}

// observe adds the value of now. Without a known value, such as a latency of nothing, only time passes.
func (s *series) observe(r rule, value float64, known bool, now time.Time) {
	if known {
		s.knownAt = now
	}
	known = !s.makesUp(r, value, known, now) && known
	s.observedAt = now
	switch {
	case known && s.isSlow(r, value, now):
		if s.slowSince.IsZero() {
			s.slowSince = now
		}
		s.slowAt, s.value = now, value
		s.present, s.last, s.begun = minute{}, minute{}, now
		return
	case !s.slowSince.IsZero():
		if now.Sub(s.slowAt) < hold {
			return
		}
		s.slowSince, s.begun = time.Time{}, now
	case now.Sub(s.begun) >= time.Minute:
		s.endMinute(r, now)
	}
	if known {
		s.present = minute{max(s.present.peak, value), true}
	}
}

// makesUp says whether a large value makes up for a silence. Such a value is neither slow nor usual.
func (s *series) makesUp(r rule, value float64, known bool, now time.Time) bool {
	if r.catchUp == 0 || s.observedAt.IsZero() {
		return false
	}
	usual, seconds := s.usualAt(r, now), now.Sub(s.observedAt).Seconds()
	switch {
	case !known, value < silent*usual:
		s.owed = min(s.owed+catchUpTimes*usual*seconds, catchUpTimes*usual*r.catchUp.Seconds())
		return false
	case value <= catchUpTimes*usual: // nothing is held up any more
		s.owed = max(0, s.owed-r.times*usual*seconds)
		return false
	}
	s.owed = max(0, s.owed-(value-usual)*seconds)
	return s.owed > 0
}

// endMinute makes the last minute a part of the past.
func (s *series) endMinute(r rule, now time.Time) {
	if s.last.known {
		s.usual, s.renewed = max(s.usualAt(r, now), s.last.peak), now
		s.minutes++
	}
	s.last, s.present, s.begun = s.present, minute{}, now
}

func (s *series) isSlow(r rule, value float64, now time.Time) bool {
	return r.anyway > 0 && value >= r.anyway ||
		s.minutes >= leastPast && value >= r.floor && value >= r.times*s.usualAt(r, now)
}

// usualAt is the usual value; 0 without a past.
func (s *series) usualAt(r rule, now time.Time) float64 {
	if s.usual == 0 || r.halfLife == 0 {
		return s.usual
	}
	return s.usual * math.Exp2(-float64(now.Sub(s.renewed))/float64(r.halfLife))
}
