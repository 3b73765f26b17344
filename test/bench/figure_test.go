package bench

import "fmt"

// figure is what one measurement found.
type figure struct {
	rate float64 // messages a second
	// p50 and p99 are milliseconds, cpu is microseconds for each message.
	p50, p99, cpu float64
}

func milliseconds(ms float64) string { return fmt.Sprintf("%.1f ms", ms) }
