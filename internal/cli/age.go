package cli

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// age says how long ago a past time was, or how far away a future time is, in the largest unit.
func age(at, now time.Time) string {
	switch d := now.Sub(at); {
	case at.IsZero():
		return "-"
	case d < 0:
		return "in " + largest(d.Abs())
	default:
		return largest(d) + " ago"
	}
}

func largest(d time.Duration) string {
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

// moment returns the time of a timestamp; nil for a timestamp that is not set.
func moment(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	t := deadletter.Time(ts.AsTime())
	return &t
}

func ageOf(ts *timestamppb.Timestamp, now time.Time) string {
	if ts == nil {
		return "-"
	}
	return age(ts.AsTime(), now)
}
