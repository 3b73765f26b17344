package deadletter_test

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

func TestCountsStayInRange(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "x": 0, "-1": 0, "7": 7, "2147483647": math.MaxInt32, "9223372036854775807": math.MaxInt32,
		"99999999999999999999": math.MaxInt32, "-99999999999999999999": 0, "1e3": 0, " 7": 0,
	} {
		got := deadletter.Count(text)
		if got != want {
			t.Errorf("Count(%q) = %d, want %d", text, got, want)
		}
		if next := deadletter.Grown(got); next < 1 || next > math.MaxInt32 || got < math.MaxInt32 && next != int64(got)+1 {
			t.Errorf("Grown(%d) = %d", got, next)
		}
	}
}

func FuzzTime(f *testing.F) {
	f.Add(int64(1_700_000_000_000), int64(0), "9999-12-31T23:59:59-23:59")
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64), "0000-01-01T00:00:00+23:59")
	f.Add(int64(math.MinInt64), int64(-1), "0001-01-01T00:00:00Z")
	f.Fuzz(func(t *testing.T, seconds, nanoseconds int64, text string) {
		parsed, _ := deadletter.ParseTime(text)
		for _, at := range []time.Time{deadletter.Time(time.Unix(seconds, nanoseconds)), parsed} {
			if _, err := json.Marshal(at); err != nil {
				t.Errorf("%d.%d, %q: %v", seconds, nanoseconds, text, err)
			}
		}
	})
}
