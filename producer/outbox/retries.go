package outbox

import (
	"cmp"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// Retries names how often and when a refused message is sent again.
type Retries uint8

// The retries.
const (
	// RetriesUsual: 9 retries after 5 s, 30 s, 2 min, doubling up to an hour.
	RetriesUsual Retries = iota
	// RetriesThree: 3 retries after exactly 5 s, 30 s and 2 min.
	RetriesThree
	// RetriesFive: 5 retries after 5 s, 30 s, 2 min, 4 min and 8 min.
	RetriesFive
)

// usualBackoff begins as the coordinator's own send.backoff does.
var usualBackoff = append([]time.Duration{5 * time.Second, 30 * time.Second},
	backoff.Exponential(2*time.Minute, longest)...)

// apply sets what the configuration leaves open. MaxAttempts counts the first attempt as well.
func (r Retries) apply(c *Config) {
	if c.Backoff == nil {
		switch c.Backoff = usualBackoff; r {
		case RetriesThree:
			c.Backoff, c.Exact = usualBackoff[:3], true
		case RetriesFive:
			c.Backoff = usualBackoff[:5]
		}
	}
	switch r {
	case RetriesThree:
		c.MaxAttempts = cmp.Or(c.MaxAttempts, 4)
	case RetriesFive:
		c.MaxAttempts = cmp.Or(c.MaxAttempts, 6)
	default:
		c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	}
}

// delay is the pause after a number of earlier refusals.
func (r *Relay) delay(refusals int) time.Duration {
	if r.config.Exact {
		return r.backoff.Step(refusals)
	}
	return r.backoff.Delay(refusals)
}
