package redis

import (
	"context"
	"time"
)

const (
	// RefusalMemory is how long refusals are shared.
	RefusalMemory = 10 * time.Minute
	// FleetMemory is how long a coordinator is known after it last described itself.
	FleetMemory = time.Hour
	// maxRefusing and maxFleet bound the coordinators in a hash: after each restart a coordinator has a new name.
	maxRefusing = 100
	maxFleet    = 300
)

// Shared is a text of another coordinator.
type Shared struct {
	// Ago is the age of the text.
	Ago  time.Duration
	Text string
}

// ShareRefusals hands the recent refusals of this coordinator to the others, empty for none, and returns the refusals
// that the others have shared within RefusalMemory, the latest first. ShareRefusals is a single script call; errors are
// the store's.
func (s *Store) ShareRefusals(ctx context.Context, text string) ([]Shared, error) {
	return s.share(ctx, refusalsName, text, RefusalMemory, maxRefusing)
}

// ShareSelf hands the description of this coordinator to the others and returns the descriptions that the others have
// shared within FleetMemory, the latest first. ShareSelf is a single script call; errors are the store's.
func (s *Store) ShareSelf(ctx context.Context, text string) ([]Shared, error) {
	return s.share(ctx, fleetName, text, FleetMemory, maxFleet)
}

func (s *Store) share(ctx context.Context, hash, text string, memory time.Duration, most int) ([]Shared, error) {
	c := newCall(s.keys.shards[0], 5)
	c.args = append(c.args, s.name, text, memory.Milliseconds(), most, hash)
	run(ctx, s.loops, s.scripts.share, []*call{c})
	if c.err != nil {
		return nil, c.err
	}
	var shared []Shared
	for i := 0; i+1 < len(c.reply); i += 2 {
		ago, _ := c.reply[i].(int64)
		text, _ := c.reply[i+1].(string)
		shared = append(shared, Shared{Ago: time.Duration(ago) * time.Millisecond, Text: text})
	}
	return shared, nil
}
