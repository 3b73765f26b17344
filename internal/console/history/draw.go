package history

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Line is one line of a chart.
type Line struct {
	// Path is the d of an SVG path in a box of Width and Height.
	Path string
	// Area is the same, closed along the bottom.
	Area string
	// Top is the largest value, Last that of the newest step (NaN when it has none), and Known whether there is any.
	Top, Last float64
	Known     bool
}

// Width and Height are the box in which lines are drawn.
const (
	Width  = 600
	Height = 100
)

// NewLine draws values, one for each step, on a scale that ends at top. NaN is a gap.
func NewLine(values []float64, top float64) Line {
	line := Line{Last: math.NaN()}
	if len(values) > 0 {
		line.Last = values[len(values)-1]
	}
	for _, v := range values {
		if !math.IsNaN(v) {
			line.Known, line.Top = true, max(line.Top, v)
		}
	}
	line.Path, line.Area = draw(values, top)
	return line
}

// Top is the largest of all values.
func Top(all ...[]float64) (top float64) {
	for _, v := range slices.Concat(all...) {
		if v > top {
			top = v
		}
	}
	return top
}

// draw gives the path of a line, each stretch without a gap on its own. A value between two gaps is a short dash.
func draw(values []float64, top float64) (path, area string) {
	var line, below strings.Builder
	step := float64(Width) / float64(max(1, len(values)))
	open := false
	for i, v := range values {
		if math.IsNaN(v) {
			open = false
			continue
		}
		x, y := (float64(i)+.5)*step, float64(Height)
		if top > 0 {
			y = Height * (1 - v/top)
		}
		alone := !open && (i+1 == len(values) || math.IsNaN(values[i+1]))
		switch {
		case alone:
			fmt.Fprintf(&line, "M%.1f %.1fH%.1f", x-step/2, y, x+step/2)
			fmt.Fprintf(&below, "M%.1f %dV%.1fH%.1fV%d", x-step/2, Height, y, x+step/2, Height)
		case !open:
			fmt.Fprintf(&line, "M%.1f %.1f", x, y)
			fmt.Fprintf(&below, "M%.1f %dV%.1f", x, Height, y)
		default:
			fmt.Fprintf(&line, "L%.1f %.1f", x, y)
			fmt.Fprintf(&below, "L%.1f %.1f", x, y)
		}
		if !alone && (i+1 == len(values) || math.IsNaN(values[i+1])) {
			fmt.Fprintf(&below, "V%d", Height)
		}
		open = true
	}
	return line.String(), below.String()
}

// Scale is the scale of an axis for values up to top: round values from 0 on, at most five of them.
func Scale(top float64, steps func(yield func(float64) bool)) []float64 {
	const most = 4
	if top == 0 {
		return []float64{0, 1}
	}
	for step := range steps {
		if n := math.Ceil(top / step); n <= most {
			scale := []float64{0}
			for i := 1; i <= int(n); i++ {
				scale = append(scale, float64(i)*step)
			}
			return scale
		}
	}
	return []float64{0, top}
}

// Decimal are the steps 1, 2 and 5, and their multiples by ten, from a tenth on.
func Decimal(yield func(float64) bool) {
	for unit := .1; unit < 1e12; unit *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if !yield(n * unit) {
				return
			}
		}
	}
}

// Seconds are steps for times in seconds: decimal ones up to 20 seconds, and then parts of minutes and hours.
func Seconds(yield func(float64) bool) {
	for _, d := range []time.Duration{
		time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond,
		50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
		time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute,
		time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	} {
		if !yield(d.Seconds()) {
			return
		}
	}
}

// Tick is a round time on the axis of a chart.
type Tick struct {
	At time.Time
	// Place is where the time is, in percent of the width.
	Place float64
}

// tickSteps are the times between two ticks, by range.
var tickSteps = map[string]time.Duration{"1h": 15 * time.Minute, "1d": 6 * time.Hour, "1w": 24 * time.Hour}

// Ticks are the round times of the series, except close to the edges.
func (s Series) Ticks() (ticks []Tick) {
	const edge = 3
	step := tickSteps[s.Range.Name]
	first := s.TimeOf(0)
	for at := floor(first, step).Add(step); ; at = at.Add(step) {
		place := 100 * at.Sub(first).Seconds() / s.Range.Span.Seconds()
		if place > 100-edge {
			return ticks
		}
		if place >= edge {
			ticks = append(ticks, Tick{at.UTC(), place})
		}
	}
}
