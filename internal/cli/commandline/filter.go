package commandline

import (
	"errors"
	"reflect"
	"time"

	"github.com/alecthomas/kong"
)

// filterTypes adds the types of flags that narrow a filter. An empty text is refused: with it, a script whose variable
// is not set would change all messages.
var filterTypes = kong.OptionFunc(func(k *kong.Kong) error {
	if err := kong.NamedMapper("filter", kong.MapperFunc(readFilter)).Apply(k); err != nil {
		return err
	}
	return kong.NamedMapper("age", kong.MapperFunc(readAge)).Apply(k)
})

var errEmptyFilter = errors.New("is empty, and would select all messages; write a value, or leave the flag out")

// readFilter reads a flag of the type filter.
func readFilter(c *kong.DecodeContext, flag reflect.Value) error {
	var text string
	if err := c.Scan.PopValueInto("filter", &text); err != nil {
		return err
	}
	if text == "" {
		return errEmptyFilter
	}
	flag.SetString(text)
	return nil
}

// readAge reads a flag of the type age. An age of 0 is none, as without the flag.
func readAge(c *kong.DecodeContext, flag reflect.Value) error {
	if err := readFilter(c, flag); err != nil {
		return err
	}
	if age, err := time.ParseDuration(flag.String()); err == nil && age == 0 {
		flag.SetString("")
	}
	return nil
}
