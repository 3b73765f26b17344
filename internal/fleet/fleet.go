// Package fleet describes the coordinators that share a Redis, and finds what is wrong with them together: coordinators
// that are missing or restart again and again, and coordinators of other versions or with another configuration.
package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

const (
	// Interval is how often a coordinator describes itself.
	Interval = 5 * time.Second
	// Silence is how long a coordinator must not have described itself before it counts as missing.
	Silence = 20 * time.Second
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
	// Stopped says that the coordinator stopped cleanly, Replaced that another has started at its place since it was seen.
	Stopped, Replaced bool
	// Excused says that silence proves nothing: Redis has been unavailable since the coordinator was seen.
	Excused bool
	// ConfigHash identifies the configuration, except keys that belong to one process.
	ConfigHash string
	// Config has the values behind ConfigHash that differ from their defaults, without secrets. Empty where they are too
	// many to share.
	Config map[string]string
}

// State is how a coordinator does.
type State string

// The states of a coordinator.
const (
	Running State = "running"
	Missing State = "missing"
	Stopped State = "stopped"
)

// State is how the coordinator does at a time.
func (c *Coordinator) State(now time.Time) State {
	switch {
	case c.Stopped, c.Replaced:
		return Stopped
	case now.Sub(c.SeenAt) > Silence && !c.Excused:
		return Missing
	}
	return Running
}

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

// configuration is what a ConfigHash stands for. It is shared once for all coordinators that have it: each description
// is read by each coordinator at each interval.
type configuration struct {
	Hash   string            `json:"hash"`
	Values map[string]string `json:"values"`
}

// Describe writes the coordinator for others.
func (c *Coordinator) Describe(now time.Time) (string, error) {
	text, err := json.Marshal(description{
		Instance: c.Instance, Place: c.Place, Version: c.Version, GRPC: c.GRPC, HTTP: c.HTTP,
		StartedAgo: now.Sub(c.StartedAt), Stopped: c.Stopped, ConfigHash: c.ConfigHash,
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
		StartedAt: seen.Add(-d.StartedAgo), SeenAt: seen, Stopped: d.Stopped, ConfigHash: d.ConfigHash,
	}, nil
}

// DescribeConfig writes the configuration for others, or an empty text where the configuration is too large to share.
func (c *Coordinator) DescribeConfig() (string, error) {
	if c.Config == nil {
		return "", nil
	}
	text, err := json.Marshal(configuration{Hash: c.ConfigHash, Values: c.Config})
	return string(text), err
}

// ReadConfig gives the configuration of a text to the coordinators that have it.
func ReadConfig(text string, all []Coordinator) error {
	var c configuration
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	for i := range all {
		if all[i].ConfigHash == c.Hash {
			all[i].Config = c.Values
		}
	}
	return nil
}

// SetConfig sets the configuration of the coordinator: values by key, without secrets.
func (c *Coordinator) SetConfig(values map[string]string) {
	whole := sha256.New()
	size := 0
	c.Config = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		for _, part := range []string{key, value} {
			whole.Write([]byte(part))
			whole.Write([]byte{0})
		}
		if len(value) > maxValue {
			value = "sha256:" + short(sha256.Sum256([]byte(value)))
		}
		c.Config[key] = value
		size += len(key) + len(value)
	}
	if size > maxConfig {
		c.Config = nil
	}
	c.ConfigHash = short([sha256.Size]byte(whole.Sum(nil)))
}

// short is enough of a hash to tell configurations apart.
func short(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:6]) }

// Arrange marks the replaced coordinators and puts the running ones first, then the missing and the stopped ones, each
// by place, the latest first.
func Arrange(all []Coordinator, now time.Time) {
	for i := range all {
		all[i].Replaced = slices.ContainsFunc(all, all[i].replacedBy)
	}
	order := map[State]int{Running: 0, Missing: 1, Stopped: 2}
	slices.SortFunc(all, func(a, b Coordinator) int {
		return cmp.Or(
			cmp.Compare(order[a.State(now)], order[b.State(now)]), cmp.Compare(a.Place, b.Place),
			b.StartedAt.Compare(a.StartedAt), cmp.Compare(a.Instance, b.Instance))
	})
}

// replacedBy says whether another coordinator started at the same place after this one was last seen. Coordinators that
// run side by side in containers of one name are no successors of each other.
func (c *Coordinator) replacedBy(other Coordinator) bool {
	return other.Place == c.Place && other.StartedAt.After(c.SeenAt)
}
