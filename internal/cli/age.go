package cli

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// age says how long ago a time was, and in how long it will be, in its largest unit.
func age(at, now time.Time) string {
	switch d := now.Sub(at); {
	case at.IsZero():
		return "-"
	case d < 0:
		return "in " + largest(-d)
	default:
		return largest(d) + " ago"
	}
}

func largest(d time.Duration) string {
	const day = 24 * time.Hour
	switch {
	case d >= 2*day:
		return fmt.Sprintf("%dd", d/day)
	case d >= 2*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return fmt.Sprintf("%ds", d/time.Second)
}

// moment gives the time of a timestamp, and nil or the zero time for one that is not set.
func moment(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	t := ts.AsTime()
	return &t
}

func ageOf(ts *timestamppb.Timestamp, now time.Time) string {
	if ts == nil {
		return "-"
	}
	return age(ts.AsTime(), now)
}
