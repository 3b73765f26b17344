package escape_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/internal/escape"
)

func TestInvisibleTextIsEscaped(t *testing.T) {
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

func TestReportBeginsOneLine(t *testing.T) {
	t.Parallel()
	said := escape.Report("open /etc/x\nmsghandler: all is well\r\nlevel=INFO: no such file")
	if want := "open /etc/x\n  msghandler: all is well\\r\n  level=INFO: no such file"; said != want {
		t.Errorf("got %q", said)
	}
}

func TestDeceptiveNames(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"\x00", "a\nb", "a\x1b[2J", "\x7f", "\u0080", "\u009b2J", "\u0085", "\u00ad", "\u061c", "\u200b", "\u200e", "\u200f",
		"\u2028", "\u2029",
		"\u202a", "\u202e", "\u2060", "\u2066", "\u2069", "\ufeff", "\U000e0061",
	} {
		if !escape.Deceptive("order" + text + "paid") {
			t.Errorf("%q is none", text)
		}
	}
	for _, text := range []string{
		"", "order.paid", "größe 12.€", "\u3042", "\u0645\u06cc\u200c\u0631\u0648\u062f", "\u0601\u0661", "👩\u200d🔧",
		"a\u00a0b",
	} {
		if escape.Deceptive(text) {
			t.Errorf("%q is such a character", text)
		}
	}
}
