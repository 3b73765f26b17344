package peers

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	// RestartsWithin is the time within which restarts are counted.
	RestartsWithin = time.Hour
	// loopWithin and loopRestarts define a restart loop: so many restarts at one place within that time, the last of them
	// within loopLately.
	loopWithin   = 10 * time.Minute
	loopRestarts = 3
	loopLately   = 5 * time.Minute
)

// Survey is what is seen of all coordinators together.
type Survey struct {
	// Missing are the coordinators that ended without a clean stop and were not replaced.
	Missing []Coordinator
	// Restarts has the coordinators that replaced others within RestartsWithin, by place.
	Restarts map[string]int
	// Looping names the places where coordinators start again and again, in order.
	Looping []string
	// Versions has the running coordinators of each version.
	Versions map[string][]string
	// Drift lists the keys of the configuration whose values differ between running coordinators.
	Drift []Difference
	// Hashes has the running coordinators of each configuration. Where it has several and Drift is empty, a configuration
	// is too large to share.
	Hashes map[string][]string
}

// Difference is a key with different values.
type Difference struct {
	Key string
	// Values has the instances with each value. An empty value is the default.
	Values map[string][]string
}

// SurveyOf looks at all coordinators once Arrange has arranged them.
func SurveyOf(all []Coordinator, now time.Time) Survey {
	s := Survey{Restarts: map[string]int{}, Versions: map[string][]string{}, Hashes: map[string][]string{}}
	var running []Coordinator
	starts := map[string][]time.Time{}
	for _, c := range all {
		if slices.ContainsFunc(all, func(earlier Coordinator) bool { return earlier.replacedBy(c) }) {
			starts[c.Place] = append(starts[c.Place], c.StartedAt)
		}
		switch c.State {
		case Running:
			running = append(running, c)
			s.Versions[c.Version] = append(s.Versions[c.Version], c.Instance)
			s.Hashes[c.Config.Hash] = append(s.Hashes[c.Config.Hash], c.Instance)
		case Missing:
			s.Missing = append(s.Missing, c)
		case Stopped:
		}
	}
	for _, place := range slices.Sorted(maps.Keys(starts)) {
		s.count(place, starts[place], now)
	}
	s.Drift = drift(running)
	return s
}

// count counts the restarts at a place.
func (s *Survey) count(place string, restarts []time.Time, now time.Time) {
	within := func(d time.Duration) (n int) {
		for _, at := range restarts {
			if now.Sub(at) < d {
				n++
			}
		}
		return n
	}
	if n := within(RestartsWithin); n > 0 {
		s.Restarts[place] = n
	}
	if within(loopWithin) >= loopRestarts && within(loopLately) > 0 {
		s.Looping = append(s.Looping, place)
	}
}

// drift finds the keys whose values differ.
func drift(running []Coordinator) (differences []Difference) {
	keys := map[string]bool{}
	for _, c := range running {
		if c.Config.Values == nil {
			return nil // too large to share: only the hashes can be compared
		}
		for key := range c.Config.Values {
			keys[key] = true
		}
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		d := Difference{Key: key, Values: map[string][]string{}}
		for _, c := range running {
			value := c.Config.Values[key]
			d.Values[value] = append(d.Values[value], c.Instance)
		}
		if len(d.Values) > 1 {
			differences = append(differences, d)
		}
	}
	return differences
}

// Rarest lists the values of a difference, those of the fewest coordinators first.
func (d Difference) Rarest() []string {
	return slices.SortedFunc(maps.Keys(d.Values), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(d.Values[a]), len(d.Values[b])), cmp.Compare(a, b))
	})
}
