package access

import (
	"fmt"
	"slices"
)

// Rules say what the names of a caller grant, beside what a source of identities grants. Lists hold globs on typed
// names.
type Rules struct {
	Viewers, Readers, Operators, Admins []string
	// Callers may call as any producer; {producer} in a glob stands for the producer's name.
	Callers []string
	// CallersOf are the callers of single producers, in place of Callers.
	CallersOf map[string][]string
	// Anonymous allows everything to callers that show nothing.
	Anonymous bool
	// Strict denies what nothing grants. Without Strict, as in versions without roles, every caller is an admin while
	// Admins is empty, and may call as each producer without callers.
	Strict bool
}

// rules are checked Rules.
type rules struct {
	// roles are the globs of each role.
	roles     [Admin + 1][]glob
	callers   []glob
	callersOf map[string][]glob
	anonymous bool
	strict    bool
}

func parseRules(from Rules) (*rules, error) {
	r := &rules{callersOf: map[string][]glob{}, anonymous: from.Anonymous, strict: from.Strict}
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

func parseGlobs(texts []string) (all []glob, err error) {
	for _, text := range texts {
		g, err := parseGlob(text)
		if err != nil {
			return nil, fmt.Errorf("%q %w", text, err)
		}
		all = append(all, g)
	}
	return all, nil
}

// roleOf is the highest role that the rules grant to names.
func (r *rules) roleOf(names []string) Role {
	if !r.strict && len(r.roles[Admin]) == 0 {
		return Admin
	}
	for role, globs := range slices.Backward(r.roles[:]) {
		if anyMatches(globs, names, "") {
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
	return len(globs) == 0 && !r.strict || anyMatches(globs, names, producer)
}
