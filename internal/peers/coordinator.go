// Package peers describes the coordinators that share a Redis, and finds what is wrong with them together: coordinators
// that are missing or restart again and again, and coordinators of other versions or with another configuration.
package peers

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

const (
	// Interval is how often a coordinator describes itself.
	Interval = 5 * time.Second
	// maxConfig bounds a shared configuration, in bytes. Above it only the hash is shared.
	maxConfig = 32 << 10
	// maxValue bounds a value of a shared configuration, in bytes. A longer value is shared as a hash.
	maxValue = 200
)

// Coordinator is a coordinator as it describes itself.
type Coordinator struct {
	// Instance is the name of the process among all coordinators of a Redis.
	Instance string
	// Place is where the process runs: host and address of the API. A coordinator that starts again has the same place,
	// unless the configuration leaves the port to the system.
	Place   string
	Version string
	// GRPC and HTTP are the addresses of the API and of the console.
	GRPC, HTTP string
	StartedAt  time.Time
	// SeenAt is when the coordinator last described itself.
	SeenAt time.Time
	// Stopped says that the coordinator is about to stop cleanly.
	Stopped bool
	// Config is the configuration in use. Of others it may have the hash only.
	Config Configuration
	// State is how the coordinator does; Arrange sets it.
	State State
}

// State is how a coordinator does.
type State string

// The states of a coordinator. A coordinator with a successor at its place counts as stopped.
const (
	Running State = "running"
	Missing State = "missing"
	Stopped State = "stopped"
)

// description is a Coordinator in the form for other coordinators. Times are ages, because clocks differ.
type description struct {
	Instance   string        `json:"instance"`
	Place      string        `json:"place"`
	Version    string        `json:"version"`
	GRPC       string        `json:"grpc"`
	HTTP       string        `json:"http"`
	StartedAgo time.Duration `json:"started_ago_ns"`
	Stopped    bool          `json:"stopped,omitempty"`
	ConfigHash string        `json:"config_hash"`
}

// Describe writes the coordinator for others.
func (c *Coordinator) Describe(now time.Time) (string, error) {
	text, err := json.Marshal(description{
		Instance: c.Instance, Place: c.Place, Version: c.Version, GRPC: c.GRPC, HTTP: c.HTTP,
		StartedAgo: now.Sub(c.StartedAt), Stopped: c.Stopped, ConfigHash: c.Config.Hash,
	})
	return string(text), err
}

// Read reads a description that is ago old.
func Read(text string, ago time.Duration, now time.Time) (Coordinator, error) {
	var d description
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return Coordinator{}, err
	}
	seen := now.Add(-ago)
	return Coordinator{
		Instance: d.Instance, Place: d.Place, Version: d.Version, GRPC: d.GRPC, HTTP: d.HTTP,
		StartedAt: seen.Add(-d.StartedAgo), SeenAt: seen, Stopped: d.Stopped, Config: Configuration{Hash: d.ConfigHash},
	}, nil
}

// Arrange sets the states and sorts: running, missing and stopped coordinators, each by place, the latest first. Ended
// has the instances that ended without a clean stop.
func Arrange(all []Coordinator, ended map[string]bool) {
	for i := range all {
		c := &all[i]
		switch {
		case c.Stopped || slices.ContainsFunc(all, c.replacedBy):
			c.State = Stopped
		case ended[c.Instance]:
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
