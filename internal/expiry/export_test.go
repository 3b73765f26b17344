package expiry

import (
	"context"
	"errors"
	"testing"
)

// HostsAre gives hosts addresses until the test ends. No other test may run meanwhile.
func HostsAre(t *testing.T, addresses map[string][]string) {
	t.Helper()
	real := lookupHost
	t.Cleanup(func() { lookupHost = real })
	lookupHost = func(_ context.Context, host string) ([]string, error) {
		if known, is := addresses[host]; is {
			return known, nil
		}
		return nil, errors.New("no such host")
	}
}
