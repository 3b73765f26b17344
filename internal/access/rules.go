package access

import (
	"fmt"
	"slices"

	"github.com/msghandler/msghandler/internal/ground/typedname"
)

// Rules say what the names of a caller grant, beside what a source of identities grants. Lists hold globs on typed
// names. What nothing grants is denied.
type Rules struct {
	Viewers, Readers, Operators, Admins []string
	// Callers may call as any producer; {producer} in a glob stands for the producer's name.
	Callers []string
	// CallersOf are the callers of single producers, in place of Callers.
	CallersOf map[string][]string
	// Anonymous allows everything to callers that show nothing.
	Anonymous bool
}

// rules are checked Rules.
type rules struct {
	// roles are the globs of each role.
	roles     [Admin + 1][]typedname.Glob
	callers   []typedname.Glob
	callersOf map[string][]typedname.Glob
	anonymous bool
}

func parseRules(from Rules) (*rules, error) {
	r := &rules{callersOf: map[string][]typedname.Glob{}, anonymous: from.Anonymous}
	var err error
	for role, globs := range map[Role][]string{
		Viewer: from.Viewers, Reader: from.Readers, Operator: from.Operators, Admin: from.Admins,
	} {
		if r.roles[role], err = parseGlobs(globs); err != nil {
			return nil, err
		}
	}
	if r.callers, err = parseGlobs(from.Callers); err != nil {
		return nil, err
	}
	for producer, globs := range from.CallersOf {
		if r.callersOf[producer], err = parseGlobs(globs); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func parseGlobs(texts []string) (all []typedname.Glob, err error) {
	for _, text := range texts {
		g, err := typedname.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("%q %w", text, err)
		}
		all = append(all, g)
	}
	return all, nil
}

// roleOf is the highest role that the rules grant to names.
func (r *rules) roleOf(names []string) Role {
	for role, globs := range slices.Backward(r.roles[:]) {
		if typedname.AnyMatches(globs, names, "") {
			return Role(role)
		}
	}
	return NoRole
}

// mayCallAs reports whether the rules allow names to call as a producer.
func (r *rules) mayCallAs(producer string, names []string) bool {
	globs := r.callers
	if own := r.callersOf[producer]; len(own) > 0 {
		globs = own
	}
	return typedname.AnyMatches(globs, names, producer)
}
