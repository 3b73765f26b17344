package callback

import (
	"cmp"
	"net"
	"time"

	"google.golang.org/grpc"
)

func (c Config) WithMaxTargets(n int) Config { c.maxTargets = n; return c }

func (c Config) WithDialOptions(options ...grpc.DialOption) Config { c.dialOptions = options; return c }

func (c Config) WithMuteAfter(d time.Duration) Config { c.muteAfter = d; return c }

func (c Config) WithResolver(resolver *net.Resolver) Config { c.resolver = resolver; return c }

// WithDefaults completes what a test does not choose.
func (c Config) WithDefaults() Config {
	c.Timeout, c.MaxBatch = cmp.Or(c.Timeout, 3*time.Second), cmp.Or(c.MaxBatch, contractBatch)
	return c
}

// ParseTarget returns the error of a target.
func ParseTarget(s string) error {
	_, err := parseTarget(s)
	return err
}
