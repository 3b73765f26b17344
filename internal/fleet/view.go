package fleet

import (
	"sync"
	"time"
)

// maxGap is how long two reads of the descriptions may be apart. In a longer gap Redis was unavailable, or this
// process stood still.
const maxGap = 2 * Interval

// View is what a coordinator has read of the others. Its zero value has none.
type View struct {
	mu     sync.Mutex
	others []Coordinator
	readAt time.Time
	// gapFrom and gapTo are the last read before the latest gap, and the first after the gap.
	gapFrom, gapTo time.Time
}

// Update keeps the descriptions that were read now.
func (v *View) Update(others []Coordinator, now time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.readAt.IsZero() && now.Sub(v.readAt) > maxGap {
		v.gapFrom, v.gapTo = v.gap(now)
	}
	v.others, v.readAt = others, now
}

// gap is the gap that lasts until now. A gap soon after another continues it.
func (v *View) gap(now time.Time) (from, to time.Time) {
	if v.readAt.Sub(v.gapTo) < Silence {
		return v.gapFrom, now
	}
	return v.readAt, now
}

// Others are the other coordinators, each with its age at a time. While Redis is unavailable no coordinator can
// describe itself, so silence says nothing until all have had the time to do so again.
func (v *View) Others(now time.Time) []Coordinator {
	v.mu.Lock()
	defer v.mu.Unlock()
	from, to := v.gapFrom, v.gapTo
	if now.Sub(v.readAt) > maxGap {
		from, to = v.gap(now)
	}
	others := make([]Coordinator, len(v.others))
	for i, c := range v.others {
		c.Excused = now.Sub(to) < Silence && c.SeenAt.After(from.Add(-Silence))
		others[i] = c
	}
	return others
}
