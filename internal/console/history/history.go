// Package history is the last hour in memory: a sample each ten seconds, and the lines that are drawn of them.
package history

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// Interval is the time between two samples.
	Interval = 10 * time.Second
	// Span is how far back they reach.
	Span = time.Hour

	most = int(Span / Interval)
)

// Sample is how the coordinator fared at a moment.
type Sample struct {
	At time.Time
	// Counts are the messages of each state; nil when they could not be counted.
	Counts map[halfmsg.State]int64
	// In and Out are messages a second since the sample before.
	In, Out float64
	// Rejected is the number of calls, and messages of batches, with the answer RESOURCE_EXHAUSTED since the previous
	// sample.
	Rejected int64
	// P50 and P99 are how long messages took from half message to acknowledgement; zero when none was acknowledged.
	P50, P99 time.Duration
}

// Ring keeps the last samples. Its zero value is empty, and it is safe for concurrent use.
type Ring struct {
	mu      sync.Mutex
	samples []Sample
}

// Add keeps a sample and forgets what is too old.
func (r *Ring) Add(s Sample) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == most {
		r.samples = append(r.samples[:0:0], r.samples[1:]...)
	}
	r.samples = append(r.samples, s)
}

// Samples gives what is kept, oldest first. The result is not changed later.
func (r *Ring) Samples() []Sample {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Sample(nil), r.samples...)
}

// Line is one line of a chart.
type Line struct {
	// Path is the d of an SVG path in a box of Width and Height.
	Path string
	// Area is the same, closed along the bottom.
	Area string
	// Top is the largest value, Last that of the newest sample (NaN when it has none), and Known whether there is any.
	Top, Last float64
	Known     bool
}

// Width and Height are the box in which lines are drawn.
const (
	Width  = 300
	Height = 60
)

// Lines draws values of the samples on one scale, over the hour that ends now. NaN is a gap.
func Lines(samples []Sample, now time.Time, values ...func(Sample) float64) []Line {
	lines := make([]Line, len(values))
	top := 0.0
	for i, value := range values {
		for _, s := range samples {
			v := value(s)
			lines[i].Last = v
			if !math.IsNaN(v) {
				lines[i].Known, lines[i].Top = true, max(lines[i].Top, v)
			}
		}
		top = max(top, lines[i].Top)
	}
	for i, value := range values {
		lines[i].Path, lines[i].Area = draw(samples, now, top, value)
	}
	return lines
}

// draw gives the path of one line, each stretch without a gap on its own.
func draw(samples []Sample, now time.Time, top float64, value func(Sample) float64) (path, area string) {
	var line, below strings.Builder
	var last float64
	open := false
	shut := func() {
		if open {
			fmt.Fprintf(&below, "L%.1f %dZ", last, Height)
		}
		open = false
	}
	for _, s := range samples {
		v, x := value(s), Width*(1-now.Sub(s.At).Seconds()/Span.Seconds())
		if math.IsNaN(v) || x < 0 {
			shut()
			continue
		}
		y := float64(Height - 1)
		if top > 0 {
			y = 1 + (Height-2)*(1-v/top)
		}
		if open {
			fmt.Fprintf(&line, "L%.1f %.1f", x, y)
		} else {
			fmt.Fprintf(&line, "M%.1f %.1f", x, y)
			fmt.Fprintf(&below, "M%.1f %d", x, Height)
		}
		fmt.Fprintf(&below, "L%.1f %.1f", x, y)
		open, last = true, x
	}
	shut()
	return line.String(), below.String()
}
