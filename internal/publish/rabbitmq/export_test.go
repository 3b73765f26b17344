package rabbitmq

import (
	"cmp"
	"time"
)

func (c Config) WithHeartbeat(d time.Duration) Config { c.heartbeat = d; return c }

func (c Config) WithWriteTimeout(d time.Duration) Config { c.writeTimeout = d; return c }

// WithDefaults completes what a test does not choose.
func (c Config) WithDefaults() Config {
	c.ConfirmTimeout, c.Window = cmp.Or(c.ConfirmTimeout, 10*time.Second), cmp.Or(c.Window, 1000)
	return c
}
