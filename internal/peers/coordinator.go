// Package peers is what coordinators on one Redis tell each other. Each coordinator writes one report of itself every
// few seconds, and reads the reports of the others. From the reports follow the sums of their counts and the calls that
// they refused. What is wrong with the coordinators together follows as well: some are missing or restart again and
// again, and some have another version or another configuration.
package peers

import (
	"cmp"
	"slices"
	"time"
)

// Coordinator is a coordinator as it describes itself.
type Coordinator struct {
	// Instance is the name of the process among all coordinators of a Redis.
	Instance string `json:"-"`
	// Place is where the process runs: host and address of the API. A coordinator that starts again has the same place,
	// unless the configuration leaves the port to the system.
	Place   string `json:"place"`
	Version string `json:"version"`
	// GRPC and HTTP are the addresses of the API and of the console.
	GRPC      string    `json:"grpc"`
	HTTP      string    `json:"http"`
	StartedAt time.Time `json:"started_at"`
	// SeenAt is when the coordinator last described itself.
	SeenAt time.Time `json:"-"`
	// Stopped says that the coordinator has stopped cleanly, and Ended that it ended without a clean stop.
	Stopped bool `json:"-"`
	Ended   bool `json:"-"`
	// Config is the configuration in use. Of others it may have the hash only.
	Config Configuration `json:"config"`
	// State is how the coordinator does; Arrange sets it.
	State State `json:"-"`
}

// State is how a coordinator does.
type State string

// The states of a coordinator. A coordinator with a successor at its place counts as stopped.
const (
	Running State = "running"
	Missing State = "missing"
	Stopped State = "stopped"
)

// Arrange sets the states and sorts: running, missing and stopped coordinators, each by place, the latest first.
func Arrange(all []Coordinator) {
	for i := range all {
		c := &all[i]
		switch {
		case c.Stopped || slices.ContainsFunc(all, c.replacedBy):
			c.State = Stopped
		case c.Ended:
			c.State = Missing
		default:
			c.State = Running
		}
	}
	order := map[State]int{Running: 0, Missing: 1, Stopped: 2}
	slices.SortFunc(all, func(a, b Coordinator) int {
		return cmp.Or(
			cmp.Compare(order[a.State], order[b.State]), cmp.Compare(a.Place, b.Place),
			b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.Instance, b.Instance))
	})
}

// replacedBy says whether another coordinator started at the same place after this one was last seen. Coordinators that
// run side by side in containers of one name are no successors of each other.
func (c *Coordinator) replacedBy(other Coordinator) bool {
	return other.Place == c.Place && other.StartedAt.After(c.SeenAt)
}
