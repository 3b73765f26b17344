package bench

import (
	"fmt"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/dev/bench"
)

// figure is the result of one measurement.
type figure struct {
	rate float64 // messages a second
	// p50 and p99 are milliseconds.
	p50, p99 float64
}

func milliseconds(ms float64) string { return fmt.Sprintf("%.1f ms", ms) }

// pairs are the ratios of two figures of the same rounds.
func pairs[T any](of, to []T, is func(T) float64) []float64 {
	ratios := make([]float64, len(of))
	for i := range ratios {
		ratios[i] = is(of[i]) / is(to[i])
	}
	return ratios
}

// ratioText is the median of ratios, and all of them in the order of the rounds.
func ratioText(ratios []float64) string {
	all := make([]string, len(ratios))
	for i, ratio := range ratios {
		all[i] = fmt.Sprintf("%.2f", ratio)
	}
	return fmt.Sprintf("%.2f (%s)", median(ratios), strings.Join(all, ", "))
}

func median(values []float64) float64 {
	return medianOf(values, func(value float64) float64 { return value })
}

// medianOf is the median of a value of the figures; of an even number, the higher of the two middle values.
func medianOf[T any](figures []T, of func(T) float64) float64 {
	values := make([]float64, len(figures))
	for i, f := range figures {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func rateOf(r bench.Report) float64 { return r.Rate }

// spentOn is the processor time of a message in all processes.
func spentOn(r bench.Report) (sum float64) {
	for _, us := range r.CPU {
		sum += us
	}
	return sum
}

// costs are medians of the processor time of a message, in the order of bench.Processes.
func costs(reports []bench.Report) string {
	all := make([]string, len(bench.Processes))
	for i, name := range bench.Processes {
		all[i] = fmt.Sprintf("%.0f", medianOf(reports, func(r bench.Report) float64 { return r.CPU[name] }))
	}
	return strings.Join(all, ", ")
}
