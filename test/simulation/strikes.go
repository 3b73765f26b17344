package simulation

import (
	"fmt"
	"slices"
	"sync"
)

// strikes are the single faults of a run. Each has a name: that of its fault, of its place, and a number. Shrinking a
// run leaves single faults out by their names.
type strikes struct {
	// allowed are the faults that may happen; nil: all.
	allowed []string
	// struck is called with the name of the fault that strikes.
	struck   func(fault string)
	mu       sync.Mutex
	numbers  map[string]int
	happened []string
}

// strike numbers a single fault, and says whether it happens.
func (s *strikes) strike(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.numbers == nil {
		s.numbers = map[string]int{}
	}
	s.numbers[name]++
	name = fmt.Sprintf("%s %d", name, s.numbers[name])
	if s.allowed != nil && !slices.Contains(s.allowed, name) {
		return false
	}
	s.happened = append(s.happened, name)
	return true
}

// strikes says whether a single fault happens. All that is drawn about the fault is drawn before, so that the other
// faults stay as they are when shrinking leaves this one out.
func (d draws) strikes(where string) bool {
	happens := d.all.strike(d.of + ": " + where)
	if happens {
		d.all.struck(d.of)
	}
	return happens
}
