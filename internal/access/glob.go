package access

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
)

// types are the types of names, each with the separator that * never matches.
var types = []struct{ name, separator string }{
	{"dns", "."}, {"uri", "/"}, {"email", "@"}, {"cn", "/"}, {"token", "/"}, {"jwt", "/"}, {"proxy", "/"},
}

// untypedTypes are the types of names that a glob without a type matches.
var untypedTypes = []string{"dns", "uri", "cn"}

// producerPlace stands for the name of the producer in a glob on its callers.
const producerPlace = "{producer}"

// glob matches typed names. With a type, * is any text within one label of a name. Without a type the glob is one of
// path.Match, as in versions that knew no types.
type glob struct{ kind, text string }

// GlobType is the type of the names that a glob matches, such as dns; empty for a glob without a type.
func GlobType(text string) string {
	kind, _, found := strings.Cut(text, ":")
	if !found || separatorOf(kind) == "" {
		return ""
	}
	return kind
}

// CheckGlob refuses a text that is no glob on typed names. The error is a phrase that follows the text.
func CheckGlob(text string) error {
	if GlobType(text) == "" {
		return fmt.Errorf("does not begin with a type of names: write one of %s", typesListed())
	}
	return CheckAnyGlob(text)
}

// CheckAnyGlob refuses what is neither a glob on typed names nor a glob without a type, on DNS names, URIs or common
// names. The error is a phrase that follows the text.
func CheckAnyGlob(text string) error {
	if strings.Contains(text, producerPlace) {
		return fmt.Errorf("holds %s, which stands in callers of producers only: name the caller", producerPlace)
	}
	return CheckCallerGlob(text)
}

// CheckCallerGlob is CheckAnyGlob for callers of producers: {producer} stands for the producer's name.
func CheckCallerGlob(text string) error {
	_, err := parseGlob(text)
	return err
}

func parseGlob(text string) (glob, error) {
	kind, rest, found := strings.Cut(text, ":")
	if separatorOf(kind) == "" || !found {
		return parseUntyped(text)
	}
	if rest == "" {
		return glob{}, fmt.Errorf("names nothing after %s:", kind)
	}
	if strings.ContainsAny(rest, `?[]\`) {
		return glob{}, errors.New(`holds ?, [, ] or \: the only wildcard of a glob with a type is *`)
	}
	return glob{kind, rest}, nil
}

func parseUntyped(text string) (glob, error) {
	kind, rest, found := strings.Cut(text, ":")
	isURI := strings.HasPrefix(rest, "//") || kind == "urn"
	if found && !isURI && !strings.ContainsFunc(kind, func(r rune) bool { return !unicode.IsLetter(r) }) {
		return glob{}, fmt.Errorf("begins with the unknown type %.20q: write one of %s", kind+":", typesListed())
	}
	if _, err := path.Match(text, ""); err != nil {
		return glob{}, errors.New("is not a glob: a bracket is not closed")
	}
	return glob{"", text}, nil
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

// anyMatches reports whether a glob matches one of the typed names. Where the globs are of a producer's callers,
// producer is its name.
func anyMatches(globs []glob, names []string, producer string) bool {
	for _, g := range globs {
		for _, name := range names {
			if g.matches(name, producer) {
				return true
			}
		}
	}
	return false
}

func (g glob) matches(typed, producer string) bool {
	kind, name, _ := strings.Cut(typed, ":")
	if strings.Contains(g.text, producerPlace) && (producer == "" || strings.Contains(producer, "*")) {
		return false // it is no producer's name, and * would match more than itself
	}
	if g.kind == "" {
		matched, err := path.Match(g.textOf(globEscaper.Replace(producer)), name)
		return err == nil && matched && slices.Contains(untypedTypes, kind)
	}
	return g.kind == kind && matchLabels(g.textOf(producer), name, separatorOf(kind))
}

// textOf is the text of a glob on the callers of a producer.
func (g glob) textOf(producer string) string {
	return strings.ReplaceAll(g.text, producerPlace, producer)
}

// globEscaper turns a text into the glob of path.Match that matches this text only.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// matchLabels matches a name label by label: a pattern has as many labels as its names. * matches no empty label.
func matchLabels(pattern, name, separator string) bool {
	for {
		label, furtherLabels, more := strings.Cut(pattern, separator)
		of, furtherOf, moreOf := strings.Cut(name, separator)
		if more != moreOf || (of == "") != (label == "") || !matchText(label, of) {
			return false
		}
		if !more {
			return true
		}
		pattern, name = furtherLabels, furtherOf
	}
}

// matchText matches a text, of which each * of the pattern is any part.
func matchText(pattern, text string) bool {
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
