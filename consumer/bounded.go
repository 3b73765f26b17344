package consumer

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// The bytes that the texts of a letter have at most. What a coordinator takes from a producer is shorter.
const (
	maxLetterName    = 512
	maxLetterText    = 2000
	maxLetterHeaders = 32 << 10
)

// errCutName is why a letter stays: its copy could go elsewhere.
var errCutName = errors.New("its producer, id, exchange or routing key is longer than 512 bytes; " +
	"publish its body by hand, or discard it")

// Bounded is the letter with texts of at most 512 bytes for names, 2,000 for causes, and 32 KiB for all headers. Any
// client of the broker writes texts of any length into a letter, and these go to pages, logs and answers. A cut text
// ends in an ellipsis. A replay publishes the letter's own headers, and refuses a letter with a cut name. The
// DeadLetters of all brokers call Bounded.
func (l Letter) Bounded() Letter {
	for _, name := range []*string{&l.ID, &l.Producer, &l.Exchange, &l.RoutingKey} {
		l.cutName = l.cutName || len(*name) > maxLetterName
		*name = cutText(*name, maxLetterName)
	}
	for _, name := range []*string{&l.Queue, &l.Consumer, &l.ContentType, &l.FirstFailedAt} {
		*name = cutText(*name, maxLetterName)
	}
	l.Reason, l.FirstCause = cutText(l.Reason, maxLetterText), cutText(l.FirstCause, maxLetterText)
	all, left := l.Headers, maxLetterHeaders
	l.Headers = make(map[string]string, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(name) >= left {
			continue
		}
		value := cutText(all[name], left-len(name))
		l.Headers[name] = value
		left -= len(name) + len(value)
	}
	return l
}

// cutText is a text of a number of bytes at most. A longer one loses its end, and its memory is free again.
func cutText(text string, most int) string {
	const ellipsis = "…"
	if len(text) <= most {
		return text
	}
	end := max(most-len(ellipsis), 0)
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	if end == 0 {
		return ""
	}
	return strings.Clone(text[:end]) + ellipsis
}
