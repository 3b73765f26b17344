package history

import (
	"math"
	"slices"
)

// Axis says where values stand on the vertical axis of a chart.
type Axis struct {
	// Marks are round values, from the lower end to the upper.
	Marks []float64
	// Cut says that there are values above the upper end. They are drawn there: one outage does not flatten the day.
	Cut bool
	// Logarithmic says that equal steps are equal factors.
	Logarithmic bool
}

const (
	// usual is the part of the values that decides where an axis may end, and leastUsual how many values that takes.
	usual, leastUsual = .95, 20
	// tooFar is how many times as far the largest value must reach before the axis is cut.
	tooFar = 3
)

// Linear is an axis from zero on.
func Linear(all ...[]float64) Axis {
	var counted []float64
	for _, v := range slices.Concat(all...) {
		if v > 0 {
			counted = append(counted, v)
		}
	}
	slices.Sort(counted)
	top := 0.0
	if n := len(counted); n > 0 {
		top = counted[n-1]
		if typical := counted[int(usual*float64(n-1))]; n >= leastUsual && top > tooFar*typical {
			top = typical * 1.2
		}
	}
	a := Axis{Marks: Scale(top)}
	a.Cut = len(counted) > 0 && counted[len(counted)-1] > a.end()
	return a
}

// times are the marks of an axis of seconds: each about ten times the one before.
var times = []float64{.001, .01, .1, 1, 10, 60, 600, 3600, 36_000, 86_400}

// Times is a logarithmic axis of times in seconds.
func Times(all ...[]float64) Axis {
	low, high := math.Inf(1), 0.0
	for _, v := range slices.Concat(all...) {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	if high == 0 {
		return Axis{Marks: times[:4], Logarithmic: true}
	}
	first, _ := slices.BinarySearchFunc(times, low, func(mark, v float64) int {
		if mark <= v {
			return -1
		}
		return 1
	})
	last, _ := slices.BinarySearch(times, high)
	first, last = max(0, first-1), min(last, len(times)-1)
	if first == last {
		first = max(0, last-1)
	}
	return Axis{Marks: times[first : last+1], Logarithmic: true, Cut: high > times[last]}
}

func (a Axis) end() float64 { return a.Marks[len(a.Marks)-1] }

// Place is where a value stands: 0 at the lower end, 1 at the upper.
func (a Axis) Place(v float64) float64 {
	place := v / a.end()
	if a.Logarithmic {
		low := math.Log(a.Marks[0])
		place = (math.Log(max(v, a.Marks[0])) - low) / (math.Log(a.end()) - low)
	}
	return min(1, max(0, place))
}
