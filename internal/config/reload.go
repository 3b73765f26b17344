package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Current is the configuration in use, which can be read again.
type Current struct {
	Config Config

	sources Sources
	given   map[string]given
}

// Change is a key whose value in the sources differs from the value in use. The texts show no secrets; they are empty
// where the default holds and is empty.
type Change struct {
	Key, Old, New string
	// Restart says that the new value takes effect with the next start only.
	Restart bool
}

// Open reads the sources as Load does.
func Open(sources Sources) (*Current, error) {
	l := newLoading()
	if err := l.read(sources); err != nil {
		return nil, err
	}
	if err := l.finish(); err != nil {
		return nil, err
	}
	return &Current{Config: l.config, sources: sources, given: l.given}, nil
}

// File is the file of the sources; empty is none.
func (c *Current) File() string { return c.sources.File }

// Reload reads the sources again and returns the configuration with the new values of the keys that need no restart,
// and all changes, sorted by key. The values of the keys in keep, and those of their files, need a restart this time.
// The receiver stays as it is.
func (c *Current) Reload(keep ...string) (*Current, []Change, error) {
	restart := func(k Key) bool {
		name := k.Name
		if k.inFile {
			name = strings.TrimSuffix(name, fileSuffix)
		}
		return !k.reload || slices.Contains(keep, name)
	}
	fresh, err := Open(c.sources)
	if err != nil {
		return nil, nil, err
	}
	l := newLoading()
	for name, g := range c.given {
		if k, _ := Find(name); restart(k) {
			l.given[name] = g
		}
	}
	for name, g := range fresh.given {
		if k, _ := Find(name); !restart(k) {
			l.given[name] = g
		}
	}
	if err := l.finish(); err != nil {
		return nil, nil, fmt.Errorf("the new values need a restart, because they do not go with others in use: %w", err)
	}
	return &Current{Config: l.config, sources: c.sources, given: l.given}, c.changes(fresh, restart), nil
}

// changes lists what differs from a configuration that was read later.
func (c *Current) changes(fresh *Current, restart func(Key) bool) (changes []Change) {
	names := maps.Clone(c.given)
	maps.Copy(names, fresh.given)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		k, _ := Find(name)
		before, after := k.valuesIn(c.given), k.valuesIn(fresh.given)
		if k.inFile && k.reload { // the value in use is the content of the file
			k.Secret, before, after = true, []string{c.given[name].content}, []string{fresh.given[name].content}
		}
		if !slices.Equal(before, after) {
			changes = append(changes, Change{Key: name, Old: k.told(before), New: k.told(after), Restart: restart(k)})
		}
	}
	return changes
}

// valuesIn are the key's values in the recorded values, or its default.
func (k Key) valuesIn(all map[string]given) []string {
	g, is := all[k.Name]
	switch {
	case !is:
		return split(k)
	case k.List() && len(g.values) == 1:
		return splitList(g.values[0])
	}
	return g.values
}

// told shows values without secrets.
func (k Key) told(values []string) string {
	if strings.Join(values, "") == "" {
		return ""
	}
	return cmp.Or(k.shown(values), "a secret")
}
