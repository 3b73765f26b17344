// Package typedname reads the names of a caller, each with its type, such as dns:orders.shop, and globs on such names.
// Rules of coordinators and of producers read names alike.
package typedname

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// types are the types of names, each with the separator that * never matches.
var types = []struct{ name, separator string }{
	{"dns", "."}, {"uri", "/"}, {"email", "@"}, {"cn", "/"}, {"token", "/"}, {"jwt", "/"}, {"proxy", "/"},
}

// asciiTypes are the types whose names are ASCII: certificates hold them so, as does the token file.
var asciiTypes = []string{"dns", "uri", "email", "token"}

// producerPlace stands for the name of the producer in a glob on its callers.
const producerPlace = "{producer}"

// Glob matches typed names: * is any text within one label of a name.
type Glob struct{ kind, text string }

// TypeOf is the type of the names that a glob matches, such as dns; empty for a text that is no glob.
func TypeOf(text string) string {
	kind, _, found := strings.Cut(text, ":")
	if !found || separatorOf(kind) == "" {
		return ""
	}
	return kind
}

// Check refuses a text that is no glob on typed names. The error is a phrase that follows the text.
func Check(text string) error {
	if strings.Contains(text, producerPlace) {
		return fmt.Errorf("holds %s, which stands in callers of producers only: name the caller", producerPlace)
	}
	return CheckCaller(text)
}

// CheckCaller is Check for callers of producers: {producer} stands for the producer's name.
func CheckCaller(text string) error {
	_, err := Parse(text)
	return err
}

// Parse reads a glob on typed names. The error is a phrase that follows the text.
func Parse(text string) (Glob, error) {
	kind, rest, found := strings.Cut(text, ":")
	if separatorOf(kind) == "" || !found {
		return Glob{}, fmt.Errorf("does not begin with a type of names: write one of %s", typesListed())
	}
	if rest == "" {
		return Glob{}, fmt.Errorf("names nothing after %q", kind+":")
	}
	if strings.ContainsAny(rest, `?[]\`) {
		return Glob{}, errors.New(`holds ?, [, ] or \: the only wildcard of a glob is *`)
	}
	if !isPrintable(rest) || strings.TrimSpace(rest) != rest {
		return Glob{}, errors.New("begins or ends with a blank, or holds a character that cannot be seen: remove it")
	}
	notASCII := func(r rune) bool { return r >= utf8.RuneSelf }
	if slices.Contains(asciiTypes, kind) && strings.ContainsFunc(rest, notASCII) {
		return Glob{}, fmt.Errorf("holds a letter that no name of the type %s: has, and that may look like one of a-z", kind)
	}
	return Glob{kind, rest}, nil
}

// typesListed names the types for people.
func typesListed() string {
	all := make([]string, len(types))
	for i := range types {
		all[i] = types[i].name + ":"
	}
	return strings.Join(all, ", ")
}

func separatorOf(kind string) string {
	for i := range types {
		if types[i].name == kind {
			return types[i].separator
		}
	}
	return ""
}

// AnyMatches reports whether a glob matches one of the typed names. Where the globs are of a producer's callers,
// producer is its name.
func AnyMatches(globs []Glob, names []string, producer string) bool {
	for _, g := range globs {
		for _, name := range names {
			if g.matches(name, producer) {
				return true
			}
		}
	}
	return false
}

func (g Glob) matches(typed, producer string) bool {
	kind, name, _ := strings.Cut(typed, ":")
	if strings.Contains(g.text, producerPlace) && (producer == "" || strings.Contains(producer, "*")) {
		return false // it is no producer's name, and * would match more than itself
	}
	pattern := strings.ReplaceAll(g.text, producerPlace, producer)
	return g.kind == kind && matchLabels(pattern, name, separatorOf(kind))
}

// matchLabels matches a name label by label: a pattern has as many labels as its names. * matches no empty label.
func matchLabels(pattern, name, separator string) bool {
	for {
		label, furtherLabels, more := strings.Cut(pattern, separator)
		of, furtherOf, moreOf := strings.Cut(name, separator)
		if more != moreOf || (of == "") != (label == "") || !MatchText(label, of) {
			return false
		}
		if !more {
			return true
		}
		pattern, name = furtherLabels, furtherOf
	}
}

// MatchText matches a text, of which each * of the pattern is any part.
func MatchText(pattern, text string) bool {
	head, rest, wild := strings.Cut(pattern, "*")
	if !wild {
		return pattern == text
	}
	text, found := strings.CutPrefix(text, head)
	for found {
		part, more, again := strings.Cut(rest, "*")
		if !again {
			return strings.HasSuffix(text, part)
		}
		_, text, found = strings.Cut(text, part)
		rest = more
	}
	return false
}
