package history

import (
	"math"
	"time"
)

// Window is the time that charts show.
type Window struct {
	// Name is the name of a preset in links, and Words the name for people; both are empty for a free window.
	Name, Words string
	// Range is the range whose buckets show the window.
	Range Range
	// From and Until are the ends of a free window.
	From, Until time.Time

	span time.Duration
}

// Presets are the windows up to now. Each has the finest buckets that reach back so far.
var Presets = []Window{
	{Name: "15m", Words: "15 minutes", Range: Ranges[0], span: 15 * time.Minute},
	{Name: "1h", Words: "hour", Range: Ranges[0], span: time.Hour},
	{Name: "1d", Words: "day", Range: Ranges[1], span: 24 * time.Hour},
	{Name: "1w", Words: "week", Range: Ranges[2], span: Kept},
}

// PresetOf is the preset with a name, and otherwise the last hour.
func PresetOf(name string) Window {
	for _, w := range Presets {
		if w.Name == name {
			return w
		}
	}
	return Presets[1]
}

// Kept is how far back there are buckets.
const Kept = 7 * 24 * time.Hour

// Between is a free window.
func Between(from, until, now time.Time) Window {
	w := Window{Range: Ranges[len(Ranges)-1], From: from, Until: until}
	for _, r := range Ranges {
		if now.Sub(from) <= r.Span {
			w.Range = r
			break
		}
	}
	return w
}

// In is the part of a series that a window shows: at least one step, and no more than the series has.
func (s Series) In(w Window) Series {
	last := s.TimeOf(s.count - 1)
	if w.From.IsZero() {
		s.count = min(s.count, int(w.span/s.Range.Step))
		s.first = last.Add(-time.Duration(s.count-1) * s.Range.Step)
		return s
	}
	first := s.Range.Begin(w.From)
	if first.Before(s.first) {
		first = s.first
	}
	if first.After(last) {
		first = last
	}
	steps := math.Ceil(w.Until.Sub(first).Seconds() / s.Range.Step.Seconds())
	s.count = max(1, min(int(steps), int(last.Sub(first)/s.Range.Step)+1))
	s.first = first
	return s
}

// Span is the time of all steps.
func (s Series) Span() time.Duration { return time.Duration(s.count) * s.Range.Step }

// PlaceOf is where a time is, in percent of the width; within the chart.
func (s Series) PlaceOf(t time.Time) float64 {
	return min(100, max(0, 100*t.Sub(s.first).Seconds()/s.Span().Seconds()))
}
