package operate

import (
	"errors"
	"math"
	"testing"
	"time"
)

func TestTimesAreReadAsWritten(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 13, 47, 3, 0, time.UTC)
	of := func(day, hour, minute, second int) time.Time {
		return time.Date(2026, 11, day, hour, minute, second, 0, time.UTC)
	}
	for text, want := range map[string]time.Time{
		"": {}, "2h": of(29, 11, 47, 3), "7d": of(22, 13, 47, 3), "0s": now,
		"02:10": of(29, 2, 10, 0), "02:10:07": of(29, 2, 10, 7), "02:10Z": of(29, 2, 10, 0),
		"02:10:07Z": of(29, 2, 10, 7), "14:00": of(28, 14, 0, 0), // not yet today
		"2026-11-24": of(24, 0, 0, 0), "2026-11-24 02:10": of(24, 2, 10, 0), "2026-11-24 02:10:07": of(24, 2, 10, 7),
		"2026-11-24T02:10": of(24, 2, 10, 0), "2026-11-24T02:10:00+01:00": of(24, 1, 10, 0),
		"2026-11-24 02:10Z": of(24, 2, 10, 0), "2026-11-24 02:10:07Z": of(24, 2, 10, 7),
	} {
		got, _, err := ParseRange(text, "", now)
		if err != nil || !got.Equal(want) {
			t.Errorf("%q is %v, %v, want %v", text, got, err, want)
		}
	}
	for _, c := range []struct {
		since, until, field string
		err                 error
	}{
		{"yesterday", "", "since", errWhen},
		{"-1h", "", "since", errWhen},
		{"1.5d", "", "since", errWhen},
		{"99999d", "", "since", errWhen},
		{"1h", "25:00", "until", errWhen},
		{"3651d", "", "since", errWhen},
		{"1h", "2h", "until", errors.New("2026-11-29 11:47 UTC is not after the start, 2026-11-29 12:47 UTC: write the end " +
			"with its date, or an earlier start")},
		{"2026-11-29 12:47", "2026-11-29 12:47", "until", errors.New("2026-11-29 12:47 UTC is not after the start, " +
			"2026-11-29 12:47 UTC: write the end with its date, or an earlier start")},
		{"2026-11-30", "", "since", errors.New("2026-11-30 00:00 UTC is in the future")},
		{"2001-01-01", "", "since", errors.New("2001-01-01 00:00 UTC is more than 3650d ago")},
	} {
		var wrong *TextError
		if _, _, err := ParseRange(c.since, c.until, now); !errors.As(err, &wrong) || wrong.Field != c.field ||
			wrong.Err.Error() != c.err.Error() {
			t.Errorf("%q to %q: %v", c.since, c.until, err)
		}
	}
}

// At 13:47 a reader who writes "from 13:30 until 14:00" means today, and one who writes "until 14:00" the last one.
func TestTimeOfDayEndsAfterStart(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 29, 13, 47, 3, 0, time.UTC)
	of := func(day, hour, minute int) time.Time { return time.Date(2026, 11, day, hour, minute, 0, 0, time.UTC) }
	for _, c := range []struct {
		since, until string
		from, to     time.Time
	}{
		{"13:30", "14:00", of(29, 13, 30), of(29, 14, 0)},
		{"22:00", "14:00", of(28, 22, 0), of(29, 14, 0)},
		{"02:00", "02:30", of(29, 2, 0), of(29, 2, 30)},
		{"14:00", "02:30", of(28, 14, 0), of(29, 2, 30)},
		{"7d", "14:00", now.Add(-7 * day), of(28, 14, 0)},
		{"", "14:00", time.Time{}, of(28, 14, 0)},
	} {
		from, to, err := ParseRange(c.since, c.until, now)
		if err != nil || !from.Equal(c.from) || !to.Equal(c.to) {
			t.Errorf("%q to %q is %v to %v, %v", c.since, c.until, from, to, err)
		}
	}
}

func TestDurationsHaveTwoUnits(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0: "0 ms", 40 * time.Millisecond: "40 ms", 1600 * time.Microsecond: "2 ms",
		999_600 * time.Microsecond: "1 s", 2500 * time.Millisecond: "2.5 s", 5 * time.Second: "5 s",
		59 * time.Second: "59 s", time.Minute: "1 min", 1085 * time.Second: "18 min 5 s", 26 * time.Hour: "26 h",
		100 * time.Hour: "4 d 4 h", -90 * time.Second: "-1 min 30 s",
		math.MinInt64: "-106751 d 23 h", math.MaxInt64: "106751 d 23 h",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%d is %q, want %q", d, got, want)
		}
	}
	now := time.Unix(1_702_483_200, 0)
	for at, want := range map[time.Time]string{
		{}: "never", now: "now", now.Add(-time.Minute): "1 min ago", now.Add(61 * time.Second): "in 1 min 1 s",
		// A client wrote milliseconds where the broker expects seconds.
		time.Unix(1_702_483_200_000, 0): "in 106751 d 23 h",
	} {
		if got := Ago(at, now); got != want {
			t.Errorf("%v is %q, want %q", at, got, want)
		}
	}
}
