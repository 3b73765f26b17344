//go:build !linux

package connlimit

import (
	"syscall"
	"time"
)

// UserTimeout does nothing where the system has no such option.
func UserTimeout(time.Duration) func(network, address string, raw syscall.RawConn) error { return nil }
