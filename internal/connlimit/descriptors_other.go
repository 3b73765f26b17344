//go:build !unix

package connlimit

// Descriptors is how many descriptors this process may have open, 0 where the limit is unknown or infinite.
func Descriptors() int { return 0 }
