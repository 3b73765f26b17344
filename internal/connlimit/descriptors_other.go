//go:build !unix

package connlimit

// Descriptors is how many descriptors this process may have open, 0 where that is unknown or without bounds.
func Descriptors() int { return 0 }
