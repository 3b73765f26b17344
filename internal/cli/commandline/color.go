package commandline

import (
	"regexp"
	"slices"
	"strings"
)

// The colours, which every terminal has.
const (
	plain  = "\x1b[0m"
	bold   = "\x1b[1m"
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
)

// toneSwitch begins or ends a colour.
var toneSwitch = regexp.MustCompile(`\x1b\[\d+m`)

// tones are the colours of words about states and severities.
var tones = map[string]string{
	"TROUBLE": red, "dead": red, "failed": red, "missing": red, "refused": red, "open": red,
	"WARNING": yellow, "abandoned": yellow, "expired": yellow, "UNKNOWN": yellow,
	"OK": green, "COMMITTED": green,
}

// toned are the heads of the columns with such words.
var toned = []string{"STATE", "SEVERITY", "RESULT", "CIRCUIT", "EXPIRES", "VERDICT"}

// tonesOf are the colours of the cells of row number n. Without a head the first cell is a severity, or the name of the
// second. A state without messages has no colour.
func tonesOf(row, head []string, headed bool, n int) []string {
	colors := make([]string, len(row))
	count := slices.Index(head, "COUNT")
	for i, cell := range row {
		word, _, _ := strings.Cut(cell, " ")
		switch {
		case headed && n == 0:
			colors[i] = bold
		case headed && (i >= len(head) || !slices.Contains(toned, head[i])):
		case headed && count >= 0 && count < len(row) && row[count] == "0":
		case !headed && i > 0 && (i != 1 || row[0] != "state"):
		default:
			colors[i] = tones[word]
		}
	}
	return colors
}

// showsColors says whether a terminal of this environment shows colours: https://no-color.org.
func (s *Session) showsColors() bool {
	kind := s.Variable("TERM")
	return s.Variable("NO_COLOR") == "" && kind != "" && kind != "dumb"
}
