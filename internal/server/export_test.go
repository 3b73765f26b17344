package server

import (
	"cmp"
	"time"
)

func (l Limits) WithCalls(n int) Limits { l.calls = n; return l }

// WithDefaults completes what a test does not choose.
func (c Config) WithDefaults() Config {
	c.ConfirmAfter, c.ConfirmLease = cmp.Or(c.ConfirmAfter, 6*time.Second), cmp.Or(c.ConfirmLease, 30*time.Second)
	c.SendLease = cmp.Or(c.SendLease, 30*time.Second)
	c.ConnectionAge, c.ConnectionIdle = cmp.Or(c.ConnectionAge, time.Hour), cmp.Or(c.ConnectionIdle, 10*time.Minute)
	c.Limits.Body, c.Limits.Waiting = cmp.Or(c.Limits.Body, 1<<20), cmp.Or(c.Limits.Waiting, 10_000)
	c.Limits.Bytes = cmp.Or(c.Limits.Bytes, 256<<20)
	return c
}
