package cli

import (
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/msghandler/msghandler/internal/ground/deadletter"
	"github.com/msghandler/msghandler/internal/operate"
)

// age says how far a time is from now, in the largest unit, as columns are narrow; "-" for no time.
func age(at, now time.Time) string {
	d := now.Sub(at)
	words := strings.Fields(operate.Duration(d.Abs().Truncate(time.Second)))
	largest := words[0] + " " + words[1]
	switch {
	case at.IsZero():
		return "-"
	case d.Abs() < time.Second:
		return "now"
	case d < 0:
		return "in " + largest
	default:
		return largest + " ago"
	}
}

// clock is a time in a table whose head says UTC.
func clock(ts *timestamppb.Timestamp) string { return ts.AsTime().Format(time.DateTime) }

// moment returns the time of a timestamp; nil for a timestamp that is not set.
func moment(ts *timestamppb.Timestamp) *time.Time {
	if ts == nil {
		return nil
	}
	t := deadletter.Time(ts.AsTime())
	return &t
}

// ageAt is the age of a time that may be missing.
func ageAt(at *time.Time, now time.Time) string {
	if at == nil {
		return "-"
	}
	return age(*at, now)
}

func ageOf(ts *timestamppb.Timestamp, now time.Time) string { return ageAt(moment(ts), now) }
