package replay

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Plan is a run of the simulation, as a process of its own is told to play it.
type Plan struct {
	// Seed decides about faults, producers and settings, and Order about the order of goroutines. Order 0 is Seed.
	Seed, Order uint64
	// Without are kinds of faults that do not happen.
	Without []string `json:",omitempty"`
	// Strikes are the single faults that happen, by their names; nil: all that the seed draws.
	Strikes []string
	// Messages is how many messages there are; and Nodes how many coordinators; 0: as many as the
	// seed draws.
	Messages int `json:",omitempty"`
	Nodes    int `json:",omitempty"`
	// Small has little happen in the world.
	Small bool `json:",omitempty"`
}

// Outcome is what a run came to, as its process prints it.
type Outcome struct {
	// Wrong are the defects; none: the run is green.
	Wrong []string `json:",omitempty"`
	// Kinds are the kinds of faults that the seed drew, and Strikes the single faults that happened.
	Kinds   []string `json:",omitempty"`
	Strikes []string `json:",omitempty"`
	// Events counts the events of connections, and Trace is a hash of them, in their order.
	Events int
	Trace  uint64 `json:",omitempty"`
	// Messages counts the messages, and Copies what consumers got.
	Messages, Copies int
	// Simulated is how long the run took by the clock of the bubble.
	Simulated time.Duration
	// Coverage counts what the run has reached, by the members of the coverage.
	Coverage map[string]int `json:",omitempty"`
	// Log is the end of the log, and the histories of messages with defects.
	Log string `json:",omitempty"`
}

// Prefix begins the line with the outcome in the output of a process.
const Prefix = "OUTCOME "

// String is the plan as Go code.
func (p Plan) String() string {
	parts := []string{fmt.Sprintf("Seed: %d", p.Seed)}
	if p.Order != 0 {
		parts = append(parts, fmt.Sprintf("Order: %d", p.Order))
	}
	if len(p.Without) > 0 {
		parts = append(parts, fmt.Sprintf("Without: %#v", p.Without))
	}
	if p.Small {
		parts = append(parts, "Small: true")
	}
	if p.Messages > 0 {
		parts = append(parts, fmt.Sprintf("Messages: %d", p.Messages))
	}
	if p.Nodes > 0 {
		parts = append(parts, fmt.Sprintf("Nodes: %d", p.Nodes))
	}
	if p.Strikes != nil {
		parts = append(parts, fmt.Sprintf("Strikes: %#v", p.Strikes))
	}
	return "replay.Plan{" + strings.Join(parts, ", ") + "}"
}

// Row is the plan as a row of the kept runs, with the planted defect if there was one.
func (p Plan) Row(defect string, o Outcome) string {
	return fmt.Sprintf("\t// %s\n\t{defect: %q, verdict: %q, plan: %v},\n", o.Wrong[0], defect, Verdicts(o.Wrong)[0], p)
}

// Verdicts are the first words of defects: LOST, STUCK and the like.
func Verdicts(wrong []string) (all []string) {
	for _, w := range wrong {
		word, _, _ := strings.Cut(w, " ")
		all = append(all, strings.TrimSuffix(word, ":"))
	}
	slices.Sort(all)
	return slices.Compact(all)
}
