//go:build unix

package connlimit

import (
	"math"
	"syscall"
)

// Descriptors is how many descriptors this process may have open, 0 where the limit is unknown or infinite.
func Descriptors() int {
	var limit syscall.Rlimit
	err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
	if err != nil || uint64(limit.Cur) > math.MaxInt32 { //nolint:unconvert // signed on some systems
		return 0
	}
	return int(limit.Cur)
}
