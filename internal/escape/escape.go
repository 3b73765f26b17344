// Package escape makes visible what a text could hide from a reader on a terminal or on a page.
package escape

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line is for single-line texts of producers and brokers: the result neither breaks a table nor commands a terminal.
func Line(s string) string { return escape(s, "") }

// Lines is for a text whose lines and tabs stay as they are.
func Lines(s string) string { return escape(s, "\n\t") }

// Report is for an error or a note on a terminal or in a file of logs: the text begins one line there, and its further
// lines are indented, so that no text from outside can pass for a line of its own.
func Report(s string) string { return strings.ReplaceAll(Lines(s), "\n", "\n  ") }

// escape quotes invisible characters as Go does, except the characters of mayStay: control characters, bytes that are
// no text, and changes of the writing direction, with which a text can look like another text.
func escape(s, mayStay string) string {
	hidden := func(r rune) bool {
		return r == unicode.ReplacementChar || !unicode.IsPrint(r) && !strings.ContainsRune(mayStay, r)
	}
	if !strings.ContainsFunc(s, hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if !hidden(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Deceptive says whether a name should not hold a text like this: a control character (C0, DEL, C1), the end of a line,
// or a character that is invisible or changes the direction of writing, with which a name can look like another name or
// command a terminal. The joiners U+200C and U+200D, and the signs that stand before a number in Arabic or Syriac,
// belong to ordinary words and are none.
func Deceptive(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool {
		if r < utf8.RuneSelf { // nearly every rune, and the tables of unicode would take longer
			return r < ' ' || r == 0x7f
		}
		const nonJoiner, joiner = '\u200c', '\u200d'
		if r == nonJoiner || r == joiner || unicode.Is(unicode.Prepended_Concatenation_Mark, r) {
			return false
		}
		return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
	})
}
