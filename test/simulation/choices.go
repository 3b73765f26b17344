package simulation

import (
	"fmt"
	"hash/fnv"
	"sync"
	"time"
)

// Choices is the only source of randomness of a world.
type Choices interface {
	// Intn chooses a number from 0 to n-1. Equal names in one run are numbered, so that a choice depends on its name and
	// its number, and not on earlier choices elsewhere.
	Intn(name string, n int) int
}

// seeded chooses by a seed.
type seeded struct {
	seed uint64
	mu   sync.Mutex
	made map[string]uint64
}

// NewChoices chooses by a seed.
func NewChoices(seed uint64) Choices { return &seeded{seed: seed, made: map[string]uint64{}} }

// Intn implements Choices.
func (s *seeded) Intn(what string, n int) int {
	s.mu.Lock()
	number := s.made[what]
	s.made[what]++
	s.mu.Unlock()
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%d/%s/%d", s.seed, what, number) // a hash never fails
	return int(mixed(h.Sum64()) % uint64(n))
}

// mixed spreads each bit over all others, as splitmix64 does: names that differ in their last letter differ little in
// their FNV.
func mixed(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// within chooses a duration from least to most, in milliseconds.
func within(c Choices, what string, least, most time.Duration) time.Duration {
	return least + time.Duration(c.Intn(what, int((most-least)/time.Millisecond)+1))*time.Millisecond
}

// percent is true so many times in a hundred.
func percent(c Choices, what string, of int) bool { return c.Intn(what, 100) < of }
