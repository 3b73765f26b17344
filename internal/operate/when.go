package operate

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// day is a unit of ages, which package time does not read.
const day = 24 * time.Hour

var (
	errAge  = errors.New("an age is a number and a unit, such as 90s, 15m, 2h or 7d, and at most 3650d")
	errWhen = errors.New("a time is written as 02:10 or 2026-11-29 02:10, both of UTC, or as 2h for two hours ago")
)

// oldest is the longest age; a coordinator takes no longer one either.
const oldest = 3650 * day

// ParseAge reads an age; an empty text is none.
func ParseAge(text string) (*durationpb.Duration, error) { return parseAge("age", text) }

func parseAge(field, text string) (*durationpb.Duration, error) {
	if text == "" {
		return nil, nil
	}
	age, err := time.ParseDuration(text)
	if number, inDays := strings.CutSuffix(text, "d"); inDays {
		var days uint64
		days, err = strconv.ParseUint(number, 10, 16)
		age = time.Duration(days) * day
	}
	if err != nil || age < 0 || age > oldest {
		return nil, &TextError{field, text, errAge}
	}
	return durationpb.New(age), nil
}

// layouts are how people write a date, with a time or without.
var layouts = []string{
	"2006-01-02 15:04", "2006-01-02 15:04Z07:00", time.DateTime, "2006-01-02 15:04:05Z07:00", time.DateOnly,
	"2006-01-02T15:04", time.RFC3339,
}

// parseWhen reads a time as people write it; an empty text is no time. A time of day, which names no day, is the latest
// before now.
func parseWhen(field, text string, now time.Time) (at time.Time, namesDay bool, err error) {
	if text == "" {
		return time.Time{}, true, nil
	}
	for _, layout := range []string{"15:04", time.TimeOnly, "15:04Z", "15:04:05Z"} {
		if clock, err := time.Parse(layout, text); err == nil {
			at := now.UTC().Truncate(day).Add(clock.Sub(clock.Truncate(day)))
			if at.After(now) {
				at = at.Add(-day)
			}
			return at, false, nil
		}
	}
	for _, layout := range layouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at, true, nil
		}
	}
	if age, err := ParseAge(text); err == nil {
		return now.Add(-age.AsDuration()), true, nil
	}
	return time.Time{}, true, &TextError{field, text, errWhen}
}

// ParseRange reads from when to when, as people write it: ages, times of day and dates, in UTC. Without a text, that
// side is open, and its time is zero. A time of day is the latest before now, and as the end the first one after the
// start where the latest is before the start: from 02:00 until 02:30, asked at 02:10, ends in the future.
func ParseRange(since, until string, now time.Time) (from, to time.Time, err error) {
	if from, _, err = parseWhen("since", since, now); err != nil {
		return from, to, err
	}
	to, namesDay, err := parseWhen("until", until, now)
	if !namesDay && !to.After(from) {
		to = to.Add(day)
	}
	switch {
	case err != nil:
	case from.After(now):
		err = &TextError{"since", since, fmt.Errorf("%s is in the future", written(from))}
	case !from.IsZero() && now.Sub(from) > oldest:
		err = &TextError{"since", since, fmt.Errorf("%s is more than 3650d ago", written(from))}
	case !to.IsZero() && !to.After(from):
		err = &TextError{"until", until, fmt.Errorf("%s is not after the start, %s: write the end with its date, or an "+
			"earlier start", written(to), written(from))}
	}
	return from, to, err
}

func written(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

// ParseSpan is ParseRange for the fields of a request, which are nil where a side is open.
func ParseSpan(since, until string, now time.Time) (from, to *timestamppb.Timestamp, err error) {
	first, last, err := ParseRange(since, until, now)
	return timestamp(first), timestamp(last), err
}

// timestamp is nil for no time.
func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// Duration writes a duration for people, in its two largest units: 18 min 5 s.
func Duration(d time.Duration) string {
	if d < 0 {
		return "-" + magnitude(d.Abs())
	}
	return magnitude(d)
}

func magnitude(d time.Duration) string {
	d = d.Round(time.Millisecond)
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(d.Seconds(), 'f', 1, 64), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return twoUnits(d, time.Minute, "min", time.Second, "s")
	case d < 2*day:
		return twoUnits(d, time.Hour, "h", time.Minute, "min")
	}
	return twoUnits(d, day, "d", time.Hour, "h")
}

// twoUnits leaves out a smaller unit of 0.
func twoUnits(d, large time.Duration, name string, small time.Duration, beside string) string {
	text := fmt.Sprintf("%d %s", d/large, name)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, beside)
	}
	return text
}

// Ago writes how far a time is from now, for people.
func Ago(t, now time.Time) string {
	switch d := now.Sub(t); {
	case t.IsZero():
		return "never"
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return "in " + magnitude(d.Abs())
	default:
		return magnitude(d) + " ago"
	}
}
