package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/ground/address"
)

// Size is a number of bytes.
type Size int64

var units = []struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"GB", 1e9},
	{"MB", 1e6},
	{"kB", 1e3},
	{"KB", 1e3},
	{"B", 1},
}

// ParseSize reads a size such as 1MiB, 64KiB or 65536.
func ParseSize(s string) (Size, error) {
	number, factor := strings.TrimSpace(s), int64(1)
	for _, unit := range units {
		if head, found := strings.CutSuffix(number, unit.name); found {
			number, factor = strings.TrimSpace(head), unit.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 || n > (1<<62)/factor {
		return 0, errors.New("is not a size; write one such as 1MiB, 64KiB or 65536")
	}
	return Size(n * factor), nil
}

// String writes the size in the largest unit without a fraction.
func (s Size) String() string {
	for _, unit := range units[:3] {
		if s > 0 && int64(s)%unit.bytes == 0 {
			return fmt.Sprintf("%d%s", int64(s)/unit.bytes, unit.name)
		}
	}
	return fmt.Sprintf("%dB", int64(s))
}

// value is the field of a key. A value parses the text of a source and describes the valid values.
type value interface {
	// set stores the given values; only lists get several. An error is a phrase that continues after the value, such as
	// "is not a number".
	set(given []string) error
	kind() string
	allowed() string
}

type textValue struct {
	field   *string
	check   func(string) error
	options []string
}

func text(field *string, check func(string) error) value {
	return &textValue{field: field, check: check}
}

func oneOf(field *string, options ...string) value {
	return &textValue{field: field, options: options, check: func(s string) error {
		if slices.Contains(options, s) {
			return nil
		}
		return fmt.Errorf("is none of %s", strings.Join(options, ", "))
	}}
}

func (v *textValue) set(given []string) error {
	if err := v.check(given[0]); err != nil {
		return err
	}
	*v.field = given[0]
	return nil
}

func (v *textValue) kind() string    { return "text" }
func (v *textValue) allowed() string { return strings.Join(v.options, ", ") }

type boolValue struct{ field *bool }

func flag(field *bool) value { return &boolValue{field} }

func (v *boolValue) set(given []string) error {
	switch given[0] {
	case "true":
		*v.field = true
	case "false":
		*v.field = false
	default:
		return errors.New("is neither true nor false")
	}
	return nil
}

func (v *boolValue) kind() string    { return "true or false" }
func (v *boolValue) allowed() string { return "" }

type wholeValue struct {
	field    *int
	min, max int
}

func whole(field *int, least, most int) value { return &wholeValue{field, least, most} }

func (v *wholeValue) set(given []string) error {
	n, err := strconv.Atoi(given[0])
	if err != nil {
		return errors.New("is not a whole number")
	}
	if n < v.min || n > v.max {
		return fmt.Errorf("is outside %s", v.allowed())
	}
	*v.field = n
	return nil
}

func (v *wholeValue) kind() string    { return "number" }
func (v *wholeValue) allowed() string { return fmt.Sprintf("%d to %d", v.min, v.max) }

type sizeValue struct {
	field    *Size
	min, max Size
}

func size(field *Size, least, most Size) value { return &sizeValue{field, least, most} }

func (v *sizeValue) set(given []string) error {
	n, err := ParseSize(given[0])
	if err != nil {
		return err
	}
	if n < v.min || n > v.max {
		return fmt.Errorf("is outside %s", v.allowed())
	}
	*v.field = n
	return nil
}

func (v *sizeValue) kind() string    { return "size" }
func (v *sizeValue) allowed() string { return fmt.Sprintf("%s to %s", v.min, v.max) }

type durationValue struct {
	field    *time.Duration
	min, max time.Duration
}

func duration(field *time.Duration, least, most time.Duration) value {
	return &durationValue{field, least, most}
}

func (v *durationValue) set(given []string) error {
	d, err := parseDuration(given[0], v.min, v.max)
	if err != nil {
		return err
	}
	*v.field = d
	return nil
}

func (v *durationValue) kind() string    { return "duration" }
func (v *durationValue) allowed() string { return between(v.min, v.max) }

type durationsValue struct {
	field *[]time.Duration
	max   time.Duration
}

// leastStep is the shortest step of a backoff: less is no pause at all.
const leastStep = time.Millisecond

func durations(field *[]time.Duration, most time.Duration) value { return &durationsValue{field, most} }

func (v *durationsValue) set(given []string) error {
	var steps []time.Duration
	for _, s := range given {
		d, err := parseDuration(s, leastStep, v.max)
		if err != nil {
			return fmt.Errorf("holds %q, which %w", s, err)
		}
		steps = append(steps, d)
	}
	if len(steps) == 0 {
		return errors.New("holds no duration; give at least one")
	}
	*v.field = steps
	return nil
}

func (v *durationsValue) kind() string    { return "list of durations" }
func (v *durationsValue) allowed() string { return "each " + between(leastStep, v.max) }

type listValue struct {
	field *[]string
	least int
	check func(string) error
	// shown is the part of an item that an error may quote, or else the item's number.
	shown func(string) string
}

func list(field *[]string, least int, check func(string) error) value {
	return &listValue{field, least, check, func(s string) string { return s }}
}

// addresses is a list of URLs, which may hold passwords.
func addresses(field *[]string, check func(string) error) value {
	return &listValue{field, 1, check, address.Shown}
}

func (v *listValue) set(given []string) error {
	// A password with a comma is torn apart, and its parts do not look like passwords: where there is a login, no part
	// is quoted.
	login := slices.ContainsFunc(given, func(s string) bool { return strings.Contains(s, "@") })
	for i, s := range given {
		err, shown := v.check(s), v.shown(s)
		switch {
		case err == nil:
		case len(given) == 1:
			return err
		case login || shown == "":
			return fmt.Errorf("holds as number %d, counted by commas, what %w", i+1, err)
		default:
			return fmt.Errorf("holds %q, which %w", shown, err)
		}
	}
	if len(given) < v.least {
		return errors.New("is empty; give at least one")
	}
	*v.field = slices.Clone(given)
	return nil
}

func (v *listValue) kind() string    { return "list" }
func (v *listValue) allowed() string { return "" }

func parseDuration(s string, least, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("is not a duration; write one with its unit, such as 500ms, 6s or 2m")
	}
	if d < least || d > most {
		return 0, fmt.Errorf("is outside %s", between(least, most))
	}
	return d, nil
}

func between(least, most time.Duration) string {
	return shortDuration(least) + " to " + shortDuration(most)
}

// shortDuration writes a duration without the zero parts of time.Duration.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// splitList reads a list written with commas; the empty text is the empty list.
func splitList(s string) []string {
	var parts []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
