package config

import (
	"slices"
	"strings"
)

// Defaults returns the sections without any given key. A file, or a variable of any key, gives the whole configuration:
// a missing key has its default on purpose. A flag gives its own section only.
func (s Sources) Defaults(sections ...string) []string {
	if s.File != "" || slices.ContainsFunc(s.Env, isKeyVariable) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(sections), func(section string) bool {
		for key := range s.Flags {
			if strings.HasPrefix(key, section+".") {
				return true
			}
		}
		return false
	})
}

// isKeyVariable says whether a variable, written KEY=VALUE, sets a key.
func isKeyVariable(pair string) bool {
	variable, value, _ := strings.Cut(pair, "=")
	return strings.HasPrefix(variable, envPrefix) && !envOther(variable) && value != ""
}
