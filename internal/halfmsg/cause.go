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
	// varying stands in a cause in place of what differs from message to message.
	varying = "…"
	// maxShortCause is how many characters a cause has.
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
	// opaque is an identifier without words, such as a UUID or a digest.
	opaque = regexp.MustCompile(`\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b|\b[0-9A-Za-z_-]{16,}\b`)
	// number is a number, or a code that explains itself: three digits and a word in capitals.
	number = regexp.MustCompile(`\b[1-5]\d\d [A-Z][A-Z_]{2,}|\b[xX]509\b|\d+([.,]\d+)*`)
)

// Cause is the reason within an error in short: without the words around the reason, and without the ids, numbers and
// addresses by which the errors of like messages differ. An empty error has no cause.
func Cause(lastError string, of Name) string {
	text := oneLine(lastError)
	for _, w := range wrappings {
		text = w.part.ReplaceAllString(text, w.into)
	}
	text = oneLine(text)
	if len(of.ID) > 2 { // a shorter id may be part of any word
		text = strings.ReplaceAll(text, of.ID, varying)
	}
	text = address.ReplaceAllString(text, varying)
	text = opaque.ReplaceAllStringFunc(text, func(word string) string {
		if strings.ContainsAny(word, "0123456789") {
			return varying
		}
		return word
	})
	text = number.ReplaceAllStringFunc(text, func(found string) string {
		if strings.ContainsAny(found, "ABCDEFGHIJKLMNOPQRSTUVWXYZx") {
			return found
		}
		return varying
	})
	if utf8.RuneCountInString(text) > maxShortCause {
		text = string([]rune(text)[:maxShortCause-1]) + varying
	}
	return text
}

// oneLine puts one blank in place of blanks, line ends and control characters.
func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
}

// CauseOf is the cause of a record's last error, or NoCause.
func CauseOf(r *Record) string { return cmp.Or(Cause(r.LastError, r.Name), NoCause) }

// CauseWord is the longest word of ASCII letters in a cause, in lower case: every error with that cause has the word.
func CauseWord(cause string) (word string) {
	if cause == NoCause {
		return ""
	}
	for _, part := range strings.FieldsFunc(strings.ToLower(cause), func(r rune) bool { return r < 'a' || r > 'z' }) {
		if len(part) > len(word) {
			word = part
		}
	}
	return word
}
