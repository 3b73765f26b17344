package config

import (
	"slices"
	"strings"
	"testing"
)

// A tag with a typing error would drop the check or the bounds of a key, and every value would be accepted.
func TestTagsNameChecksAndBounds(t *testing.T) {
	t.Parallel()
	all := slices.Clone(table)
	for _, keys := range named {
		all = append(all, keys...)
	}
	unused := map[string]bool{}
	for name := range checks {
		unused[name] = true
	}
	for _, k := range all {
		if check := k.tags.Get("check"); check != "" {
			delete(unused, check)
			if checks[check] == nil {
				t.Errorf("%s has the check %q, which does not exist", k.Name, check)
			}
		}
		n := k.number()
		if n.kind == "" {
			continue
		}
		least, most, _ := strings.Cut(k.tags.Get("bounds"), " ")
		for _, bound := range []string{least, most} {
			if _, err := n.read(bound); err != nil {
				t.Errorf("%s has the bound %q, which %v", k.Name, bound, err)
			}
		}
		if k.least >= k.most {
			t.Errorf("%s is bounded to %s", k.Name, k.between())
		}
	}
	if len(unused) > 0 {
		t.Errorf("no key has the checks %v", unused)
	}
}
