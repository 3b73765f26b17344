package redis

import (
	"context"
	"time"
)

const (
	// RefusalMemory is how long refusals are shared.
	RefusalMemory = 10 * time.Minute
	// maxSharing bounds the coordinators in the key: after each restart a coordinator has a new name.
	maxSharing = 100
)

// SharedRefusals are the refusals of another coordinator.
type SharedRefusals struct {
	// Ago is the age of the text.
	Ago time.Duration
	// Text is the argument of the other coordinator's ShareRefusals.
	Text string
}

// ShareRefusals hands the recent refusals of this coordinator to the others, empty for none, and returns the refusals
// that the others have shared within RefusalMemory, the latest first. ShareRefusals is a single script call; errors are
// the store's.
func (s *Store) ShareRefusals(ctx context.Context, text string) ([]SharedRefusals, error) {
	c := newCall(s.keys.shards[0], 4)
	c.args = append(c.args, s.name, text, RefusalMemory.Milliseconds(), maxSharing)
	run(ctx, s.loops, s.scripts.refusals, []*call{c})
	if c.err != nil {
		return nil, c.err
	}
	var shared []SharedRefusals
	for i := 0; i+1 < len(c.reply); i += 2 {
		ago, _ := c.reply[i].(int64)
		text, _ := c.reply[i+1].(string)
		shared = append(shared, SharedRefusals{Ago: time.Duration(ago) * time.Millisecond, Text: text})
	}
	return shared, nil
}
