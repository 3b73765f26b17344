package kafka

import (
	"cmp"
	"time"
)

func (c Config) WithReachTimeout(d time.Duration) Config { c.reachTimeout = d; return c }

// WithDefaults completes what a test does not choose.
func (c Config) WithDefaults() Config {
	c.ConfirmTimeout, c.Window = cmp.Or(c.ConfirmTimeout, 10*time.Second), cmp.Or(c.Window, 1000)
	return c
}
