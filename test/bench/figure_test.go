package bench

import (
	"fmt"
	"slices"
)

// figure is what one measurement found.
type figure struct {
	rate float64 // messages a second
	// p50 and p99 are milliseconds, cpu is microseconds for each message.
	p50, p99, cpu float64
}

func median(figures []figure, of func(figure) float64) float64 {
	values := make([]float64, len(figures))
	for i, f := range figures {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func milliseconds(ms float64) string { return fmt.Sprintf("%.1f ms", ms) }
