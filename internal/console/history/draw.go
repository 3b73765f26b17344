package history

import (
	"fmt"
	"math"
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

// NewLine draws values, one for each step, on an axis. NaN is a gap.
func NewLine(values []float64, on Axis) Line {
	line := Line{Last: math.NaN()}
	if len(values) > 0 {
		line.Last = values[len(values)-1]
	}
	for _, v := range values {
		if !math.IsNaN(v) {
			line.Known, line.Top = true, max(line.Top, v)
		}
	}
	line.Path, line.Area = draw(values, on)
	return line
}

// draw gives the path of a line, each stretch without a gap on its own. A value between two gaps is a short dash.
func draw(values []float64, on Axis) (path, area string) {
	var line, below strings.Builder
	step := float64(Width) / float64(max(1, len(values)))
	open := false
	for i, v := range values {
		if math.IsNaN(v) {
			open = false
			continue
		}
		x, y := (float64(i)+.5)*step, Height*(1-on.Place(v))
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
func Scale(top float64) []float64 {
	const most = 4
	if top == 0 {
		return []float64{0, 1}
	}
	for step := range decimal {
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

// decimal are the steps 1, 2 and 5, and their multiples by ten, from a tenth on.
func decimal(yield func(float64) bool) {
	for unit := .1; unit < 1e12; unit *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if !yield(n * unit) {
				return
			}
		}
	}
}

// Tick is a round time on the axis of a chart.
type Tick struct {
	At time.Time
	// Place is where the time is, in percent of the width.
	Place float64
}

// tickSteps are the times between two ticks, of which a chart has at most maxTicks.
var tickSteps = []time.Duration{
	time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour,
}

const maxTicks = 7

// Ticks are the round times of the series, except close to the edges.
func (s Series) Ticks() (ticks []Tick) {
	const edge = 3
	step := tickSteps[len(tickSteps)-1]
	for _, each := range tickSteps {
		if s.Span() <= maxTicks*each {
			step = each
			break
		}
	}
	for at := floor(s.first, step).Add(step); ; at = at.Add(step) {
		place := 100 * at.Sub(s.first).Seconds() / s.Span().Seconds()
		if place > 100-edge {
			return ticks
		}
		if place >= edge {
			ticks = append(ticks, Tick{at.UTC(), place})
		}
	}
}
