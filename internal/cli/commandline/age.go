package commandline

import (
	"errors"
	"reflect"
	"time"

	"github.com/alecthomas/kong"
)

var errNoAge = errors.New("is empty, and would select messages of any age; write an age such as 10m, or leave the " +
	"flag out")

// readAge reads a flag of the type age, which narrows a filter. An empty text is refused: with it, a script whose
// variable is not set would change messages of any age. An age of 0 is none, as without the flag.
func readAge(c *kong.DecodeContext, flag reflect.Value) error {
	var text string
	if err := c.Scan.PopValueInto("age", &text); err != nil {
		return err
	}
	if text == "" {
		return errNoAge
	}
	if age, err := time.ParseDuration(text); err == nil && age == 0 {
		text = ""
	}
	flag.SetString(text)
	return nil
}
