package commandline

import (
	"unicode"

	"golang.org/x/text/width"
)

// columnsOf is how many columns of a terminal a text takes.
func columnsOf(text string) (columns int) {
	for _, r := range text {
		columns += columnsOfRune(r)
	}
	return columns
}

func columnsOfRune(r rune) int {
	switch {
	case r <= unicode.MaxASCII:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me):
		return 0 // an accent on the rune before it
	case isWide(r):
		return 2
	}
	return 1
}

// isWide says whether a rune takes two columns, as those of Chinese, Japanese and Korean, and emoji, do.
func isWide(r rune) bool {
	kind := width.LookupRune(r).Kind()
	return kind == width.EastAsianWide || kind == width.EastAsianFullwidth
}
