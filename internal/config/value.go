package config

import (
	"errors"
	"fmt"
	"reflect"
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

// number is how values of a type of numbers are read and written.
type number struct {
	kind  string
	read  func(string) (int64, error)
	write func(int64) string
}

var (
	durationType = reflect.TypeFor[time.Duration]()
	numbers      = map[reflect.Type]number{
		reflect.TypeFor[int]():  {"number", readWhole, func(n int64) string { return strconv.FormatInt(n, 10) }},
		reflect.TypeFor[Size](): {"size", readSize, func(n int64) string { return Size(n).String() }},
		durationType:            {"duration", readDuration, func(n int64) string { return shortDuration(time.Duration(n)) }},
	}
)

func readWhole(s string) (int64, error) {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0, errors.New("is not a whole number")
	}
	return int64(n), nil
}

func readSize(s string) (int64, error) {
	n, err := ParseSize(s)
	return int64(n), err
}

func readDuration(s string) (int64, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("is not a duration; write one with its unit, such as 500ms, 6s or 2m")
	}
	return int64(d), nil
}

// number is how the values of a key, or of the items of its list, are read; zero for texts.
func (k Key) number() number {
	if k.List() {
		return numbers[k.kindOf.Elem()]
	}
	return numbers[k.kindOf]
}

// Bool says whether the value is true or false.
func (k Key) Bool() bool { return k.kindOf.Kind() == reflect.Bool && !k.inFile }

// List says whether the key takes several values.
func (k Key) List() bool { return k.kindOf.Kind() == reflect.Slice && !k.inFile }

// Kind is the type of the value in a word or two, such as "duration".
func (k Key) Kind() string {
	switch {
	case k.inFile:
		return "file"
	case k.Bool():
		return "true or false"
	case k.List() && k.number().kind != "":
		return "list of " + k.number().kind + "s"
	case k.List():
		return "list"
	case k.number().kind != "":
		return k.number().kind
	}
	return "text"
}

// Allowed says which values are valid; empty when the kind is enough.
func (k Key) Allowed() string {
	switch {
	case k.inFile:
		return ""
	case k.number().kind == "":
		return strings.Join(k.options(), ", ")
	case k.List():
		return "each " + k.between()
	}
	return k.between()
}

func (k Key) between() string { return k.number().write(k.least) + " to " + k.number().write(k.most) }

// options are the valid texts; none where there are others.
func (k Key) options() []string { return splitList(k.tags.Get("oneof")) }

// read reads the values of a source, for the key of a file the content of the file: without a file nothing is read. An
// error is a phrase that continues after the value, such as "is not a number".
func (k Key) read(given []string) (reflect.Value, error) {
	if !k.inFile {
		return k.parse(given)
	}
	if given[0] == "" {
		return reflect.Value{}, nil
	}
	k.inFile, k.Secret = false, true
	values := given
	if k.List() {
		values = splitList(strings.ReplaceAll(given[0], "\n", ","))
	}
	v, err := k.parse(values)
	if err != nil {
		return reflect.Value{}, fmt.Errorf("holds a value that %w", err)
	}
	return v, nil
}

// parse reads values; only lists get several.
func (k Key) parse(given []string) (reflect.Value, error) {
	if k.List() {
		return k.parseList(given)
	}
	v := reflect.New(k.kindOf).Elem()
	return v, k.parseOne(v, given[0])
}

// parseOne reads the text of a value into a field.
func (k Key) parseOne(field reflect.Value, text string) error {
	n := k.number()
	switch {
	case n.kind != "":
		value, err := n.read(text)
		if err != nil {
			return err
		}
		if value < k.least || value > k.most {
			return fmt.Errorf("is outside %s", k.between())
		}
		field.SetInt(value)
	case field.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return errors.New("is neither true nor false")
		}
		field.SetBool(text == "true")
	default:
		if err := k.checkText(text); err != nil {
			return err
		}
		field.SetString(text)
	}
	return nil
}

func (k Key) checkText(text string) error {
	if options := k.options(); len(options) > 0 && !slices.Contains(options, text) {
		return fmt.Errorf("is none of %s", strings.Join(options, ", "))
	}
	if check := checks[k.tags.Get("check")]; check != nil {
		return check(text)
	}
	return nil
}

// parseList reads the items of a list. A password with a comma is torn apart, and its parts do not look like
// passwords: where there is a login, no part is quoted.
func (k Key) parseList(given []string) (reflect.Value, error) {
	items := reflect.MakeSlice(k.kindOf, len(given), len(given))
	login := slices.ContainsFunc(given, func(s string) bool { return strings.Contains(s, "@") })
	for i, text := range given {
		err, shown := k.parseOne(items.Index(i), text), text
		if k.Secret {
			shown = address.Shown(text)
		}
		switch {
		case err == nil:
		case len(given) == 1 && k.number().kind == "":
			return items, err
		case login || shown == "":
			return items, fmt.Errorf("holds as number %d, counted by commas, what %w", i+1, err)
		default:
			return items, fmt.Errorf("holds %q, which %w", shown, err)
		}
	}
	switch {
	case len(given) > 0:
		return items, nil
	case k.tags.Get("some") == "":
		return reflect.Zero(k.kindOf), nil
	case k.number().kind != "":
		return items, fmt.Errorf("holds no %s; give at least one", k.number().kind)
	}
	return items, errors.New("is empty; give at least one")
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
