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
	// PeersMemory is how long the producers and exchanges of a coordinator count after it last shared them.
	PeersMemory = 20 * time.Second
)

// A hash of shared texts is bounded, because after each restart a coordinator has a new name. Coordinators with the
// same configuration share a single text of it.
var (
	ofRefusals       = sharing{hash: refusalsName, memory: RefusalMemory, most: 100}
	ofSelves         = sharing{hash: fleetName, memory: FleetMemory, most: 300}
	ofPeers          = sharing{hash: peersName, memory: PeersMemory, most: 100}
	ofConfigurations = sharing{hash: configurationsName, memory: FleetMemory, most: 20}
)

// sharing is a hash of shared texts.
type sharing struct {
	hash   string
	memory time.Duration
	most   int
}

// Shared is a text that others have shared.
type Shared struct {
	// Ago is the age of the text.
	Ago  time.Duration
	Text string
}

// ShareRefusals hands the recent refusals of this coordinator to the others, empty for none, and returns the refusals
// that the others have shared within RefusalMemory, the latest first. ShareRefusals is a single script call; errors are
// the store's.
func (s *Store) ShareRefusals(ctx context.Context, text string) ([]Shared, error) {
	return s.share(ctx, ofRefusals, s.name, text)
}

// ShareSelf hands the description of this coordinator to the others and returns the descriptions that the others have
// shared within FleetMemory, the latest first. ShareSelf is a single script call; errors are the store's.
func (s *Store) ShareSelf(ctx context.Context, text string) ([]Shared, error) {
	return s.share(ctx, ofSelves, s.name, text)
}

// SharePeers hands the counts of this coordinator's producers and exchanges to the others, empty for none, and returns
// the counts that the others have shared within PeersMemory, the latest first. SharePeers is a single script call;
// errors are the store's.
func (s *Store) SharePeers(ctx context.Context, text string) ([]Shared, error) {
	return s.share(ctx, ofPeers, s.name, text)
}

// ShareConfiguration hands a configuration to the others, under the hash that identifies it, and returns the other
// configurations that coordinators have shared within FleetMemory, the latest first. ShareConfiguration is a single
// script call; errors are the store's.
func (s *Store) ShareConfiguration(ctx context.Context, hash, text string) ([]Shared, error) {
	return s.share(ctx, ofConfigurations, hash, text)
}

func (s *Store) share(ctx context.Context, of sharing, who, text string) ([]Shared, error) {
	c := newCall(s.keys.shards[0], 5)
	c.args = append(c.args, who, text, of.memory.Milliseconds(), of.most, of.hash)
	run(ctx, s.loops, s.scripts.coordinators, []*call{c})
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
