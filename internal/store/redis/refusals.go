package redis

import (
	"context"
	"time"
)

const (
	// RefusalMemory is for how long what a coordinator has refused is shared with the others.
	RefusalMemory = 10 * time.Minute
	// maxSharing bounds how many coordinators' refusals are kept: one that is restarted each second has a new name each
	// time.
	maxSharing = 100
)

// SharedRefusals is what another coordinator has refused to producers.
type SharedRefusals struct {
	// Ago is how long ago it was shared.
	Ago time.Duration
	// Text is what that coordinator gave to ShareRefusals.
	Text string
}

// ShareRefusals tells the other coordinators what this one has refused lately, empty for nothing, and returns what they
// have shared within RefusalMemory, the latest first. It is one call of a script; its errors are those of the store.
func (s *Store) ShareRefusals(ctx context.Context, text string) ([]SharedRefusals, error) {
	c := newCall(s.scripts.refusals, s.keys.shards[0], 4)
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
