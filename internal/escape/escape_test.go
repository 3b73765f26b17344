package escape_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/escape"
)

func TestWhatCannotBeSeenIsEscaped(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"größe 12 €\u3042":          "größe 12 €\u3042",
		"\x1b[2J\x00\x7f":           `\x1b[2J\x00\x7f`,
		"\u009b2J\u0080\u0085":      `\u009b2J\u0080\u0085`,
		"\u202etxt.exe\u200b":       `\u202etxt.exe\u200b`,
		"a\r\nb\tc\u2028\U000e0001": `a\r\nb\tc\u2028\U000e0001`,
		"\x9b2J":                    `\ufffd2J`,
	} {
		if got := escape.Line(text); got != want {
			t.Errorf("%q: got %q instead of %q", text, got, want)
		}
		stays := strings.NewReplacer(`\n`, "\n", `\t`, "\t").Replace(want)
		if got := escape.Lines(text); got != stays {
			t.Errorf("%q: got %q instead of %q of lines", text, got, stays)
		}
	}
}
