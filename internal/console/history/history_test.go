package history_test

import (
	"math"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/console/history"
)

func TestARingKeepsAnHour(t *testing.T) {
	t.Parallel()
	var ring history.Ring
	for i := range 1000 {
		ring.Add(history.Sample{In: float64(i)})
	}
	kept := ring.Samples()
	if len(kept) != 360 || kept[0].In != 640 || kept[359].In != 999 {
		t.Errorf("keeps %d from %v", len(kept), kept[0].In)
	}
}

func TestALineHasGapsWithoutSamples(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	var samples []history.Sample
	for i, v := range []float64{9, 0, 50, math.NaN(), 100} {
		age := []time.Duration{2 * time.Hour, time.Hour, 30 * time.Minute, 15 * time.Minute, 0}[i]
		samples = append(samples, history.Sample{At: now.Add(-age), In: v})
	}
	line := history.Lines(samples, now, func(s history.Sample) float64 { return s.In })[0]
	if want := "M0.0 59.0L150.0 30.0M300.0 1.0"; line.Path != want {
		t.Errorf("path %s, want %s", line.Path, want)
	}
	if want := "M0.0 60L0.0 59.0L150.0 30.0L150.0 60ZM300.0 60L300.0 1.0L300.0 60Z"; line.Area != want {
		t.Errorf("area %s, want %s", line.Area, want)
	}
	if line.Top != 100 || line.Last != 100 || !line.Known {
		t.Errorf("got %+v", line)
	}
	if none := history.Lines(nil, now, func(s history.Sample) float64 { return s.In })[0]; none.Known || none.Path != "" {
		t.Errorf("got %+v", none)
	}
}
