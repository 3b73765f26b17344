package halfmsg

import (
	"cmp"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// NoCause is the cause of a message without an error.
	NoCause = "(none)"
	// varying stands in a cause in place of what differs from message to message, and for the end of a long text.
	varying = "…"
	// maxShortCause is how many characters a cause or a reason has.
	maxShortCause = 160
)

// wrappings are the parts of errors that say how a call was made, not why the call failed. A blank takes the place of
// such a part: each word of a cause is a part of its error, so that a store can look for the word.
var wrappings = []struct {
	part *regexp.Regexp
	into string
}{
	{regexp.MustCompile(`^[A-Z][A-Za-z]+ of producer \S+ at \S+: `), " "},
	{regexp.MustCompile(`rpc error: code = (\w+) desc = `), " $1: "},
	{regexp.MustCompile(`connection error: desc = "(.*)"`), " $1 "},
	{regexp.MustCompile(`transport: |[Ee]rror while dialing:? |dial tcp[46]? \S+: |connect: `), " "},
	{regexp.MustCompile(`Exception \(\d+\) Reason: "(.*)"`), " $1 "},
}

var (
	// address is an IP address with or without a port.
	address = regexp.MustCompile(`\[[0-9a-fA-F:]*:[0-9a-fA-F:]*\](:\d+)?|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b`)
	// varied is a word with digits, such as a number, a time or an id. Two codes explain themselves, and stay: three
	// digits before a word in capitals, and x509.
	varied = regexp.MustCompile(`\b[1-5]\d\d [A-Z][A-Z_]{2,}|\b[xX]509\b|[\w-]*\d[\w-]*([.,]\d[\w-]*)*`)
	coded  = regexp.MustCompile(`^(\d\d\d [A-Z]|[xX]509$)`)
)

// Reason is what an error says in short, for people: without the words that say how a call was made.
func Reason(lastError string) string { return shorten(reasonOf(lastError)) }

func reasonOf(lastError string) string {
	text := oneLine(lastError)
	for _, w := range wrappings {
		text = w.part.ReplaceAllString(text, w.into)
	}
	return oneLine(text)
}

// Cause is what the errors of like messages have in common: the reason without the ids, numbers and addresses by which
// they differ. It groups messages, and is no text for people. An empty error has no cause.
func Cause(lastError string, of Name) string {
	text := reasonOf(lastError)
	if len(of.ID) > 2 { // a shorter id may be part of any word
		text = strings.ReplaceAll(text, of.ID, varying)
	}
	text = address.ReplaceAllString(text, varying)
	text = varied.ReplaceAllStringFunc(text, func(found string) string {
		if coded.MatchString(found) {
			return found
		}
		return varying
	})
	return shorten(text)
}

// shorten cuts a text that is too long.
func shorten(text string) string {
	if utf8.RuneCountInString(text) <= maxShortCause {
		return text
	}
	return string([]rune(text)[:maxShortCause-1]) + varying
}

// CauseText is a text that stands for the cause of an error among people, and in a filter: the reason itself. Where
// other words than those with digits tell the errors of that cause apart, the text is the cause.
func CauseText(lastError string, of Name) string {
	text, cause := reasonOf(lastError), Cause(lastError, of)
	if Cause(text, Name{}) == cause {
		return text
	}
	return cause
}

// oneLine puts one blank in place of blanks, line ends and control characters.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

// CauseOf is the cause of a record's last error, or NoCause.
func CauseOf(r *Record) string { return cmp.Or(Cause(r.LastError, r.Name), NoCause) }

// CauseWord is the longest word of ASCII letters in the cause of a text, in lower case: every error with that cause has
// the word.
func CauseWord(text string) (word string) {
	if text == NoCause {
		return ""
	}
	cause := strings.ToLower(Cause(text, Name{}))
	for _, part := range strings.FieldsFunc(cause, func(r rune) bool { return r < 'a' || r > 'z' }) {
		if len(part) > len(word) {
			word = part
		}
	}
	return word
}
