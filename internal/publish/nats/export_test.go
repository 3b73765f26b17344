package nats

import (
	"cmp"
	"time"
)

// Quick is the configuration with times that fit a test.
func (c Config) Quick() Config {
	c.pingInterval, c.writeTimeout, c.watchInterval = time.Second, 500*time.Millisecond, 200*time.Millisecond
	c.ConfirmTimeout, c.Window = cmp.Or(c.ConfirmTimeout, 10*time.Second), cmp.Or(c.Window, 1000)
	return c
}
