package config

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/msghandler/msghandler/internal/ground/address"
)

// Sources are where values come from, the weakest first.
type Sources struct {
	// File is the path of a YAML file; empty is none.
	File string
	// Env is the environment, as KEY=VALUE. Variables without the prefix MSGHANDLER_ are ignored.
	Env []string
	// Flags are values from the command line by key; lists are written with commas.
	Flags map[string]string
}

// given is a value with its source.
type given struct {
	values []string
	// origin is FILE:LINE, the environment variable or the flag.
	origin string
	// written is the key in the form of the source.
	written string
	// file is the configuration file that the value stands in; empty for other sources.
	file string
	// content is that of the file which the value names, for a key of a file with a secret. It is read once.
	content string
}

// loading is a configuration being put together.
type loading struct {
	config   Config
	given    map[string]given
	problems []Problem
}

// Load reads the sources and returns the configuration. The error is an *Error that holds every problem of every
// source, or says that the file cannot be read. Load reads the files of secrets too, and opens no connection.
func Load(sources Sources) (Config, error) {
	c, err := Open(sources)
	if err != nil {
		return Config{}, err
	}
	return c.Config, nil
}

func newLoading() *loading { return &loading{config: Default(), given: map[string]given{}} }

// read takes the values of the sources.
func (l *loading) read(sources Sources) error {
	if sources.File != "" {
		if err := l.readFile(sources.File); err != nil {
			return err
		}
	}
	l.readEnv(sources.Env)
	for name, v := range sources.Flags {
		l.offer(name, given{values: []string{v}, origin: "flag --" + name, written: name})
	}
	return nil
}

// finish sets the fields and checks them.
func (l *loading) finish() error {
	for _, name := range slices.Sorted(maps.Keys(l.given)) {
		l.checkTwice(name, l.given[name])
		k, _ := Find(name)
		l.set(k, l.given[name])
	}
	if len(l.problems) == 0 {
		l.checkRelations()
	}
	if len(l.problems) > 0 {
		return &Error{Problems: l.problems}
	}
	return nil
}

// offer records a value for a key. Stronger sources are read later and win.
func (l *loading) offer(name string, g given) {
	if slices.ContainsFunc(g.values, isDeceptive) {
		l.problem(g, "", "holds a character that is invisible or changes the direction of writing; remove it")
		return
	}
	if _, known := Find(name); !known {
		l.problem(g, "", "is not a known key"+hint(name))
		return
	}
	l.given[name] = g
}

// set sets the field of a key.
func (l *loading) set(k Key, g given) {
	values := g.values
	if k.List() && len(values) == 1 {
		values = splitList(values[0])
	}
	if what := k.checkName(); what != "" {
		l.problem(g, "", what)
		return
	}
	if k.of != "" && k.List() && len(values) == 0 { // its owner may mean none
		l.problem(g, "", "is an empty list, and the list for all would count: name what is allowed, or remove the line")
		return
	}
	if !k.List() && len(values) != 1 {
		l.problem(g, k.shown(values), "takes one value, not a list")
		return
	}
	if err := l.setValues(k, &g, values); err != nil {
		l.problem(g, k.shown(g.values), err.Error())
		return
	}
	l.given[k.Name] = g
	l.notePrivate(k, g)
}

// setValues sets the field of a key, for the key of a file to the content of the file.
func (l *loading) setValues(k Key, g *given, values []string) (err error) {
	if k.inFile && g.content == "" && values[0] != "" {
		g.content, err = ReadSecret(values[0])
	}
	if k.inFile {
		values = []string{g.content}
	}
	if err != nil {
		return err
	}
	return k.set(&l.config, values)
}

// checkName says why the entry of a key has no valid name. The tag of its section says what the name is of, and how
// long the name may be.
func (k Key) checkName() string {
	section := reflect.TypeFor[Config]().Field(k.section).Tag
	longest, err := strconv.Atoi(section.Get("longest"))
	if err != nil || isName(k.of, longest) {
		return ""
	}
	return fmt.Sprintf("names no %s: a name has 1 to %d of A-Z a-z 0-9 . _ -", section.Get("names"), longest)
}

// isName says whether a text can be the name of a producer, a broker or the like.
func isName(name string, longest int) bool {
	return name != "" && len(name) <= longest &&
		!strings.ContainsFunc(name, func(r rune) bool { return notPrefixRune(r) || r == ':' })
}

func (l *loading) problem(g given, value, what string) {
	l.problems = append(l.problems, Problem{Key: g.written, Source: g.origin, Value: value, What: what})
}

// relation reports a key that contradicts another key.
func (l *loading) relation(name, format string, args ...any) {
	k, _ := Find(name)
	g, set := l.given[name]
	if !set {
		g = given{values: []string{k.Default}, origin: "default", written: name}
	}
	l.problem(g, k.shown(g.values), fmt.Sprintf(format, args...))
}

// says names a key with its value and source.
func (l *loading) says(name string) string {
	k, _ := Find(name)
	if g, set := l.given[name]; set {
		return fmt.Sprintf("%s (%s, from %s)", name, cmp.Or(k.shown(g.values), "a secret"), g.origin)
	}
	return fmt.Sprintf("%s (%s, the default)", name, k.Default)
}

// shown is the part of a key's values that a problem may show. Of a secret only the output of address.Shown is shown,
// and of a list each item is checked: an item of unknown form may be a piece of a password.
func (k Key) shown(values []string) string {
	text := strings.Join(values, ",")
	if !k.Secret {
		return redact(text)
	}
	items := []string{text}
	if k.List() {
		items = splitList(text)
	}
	for i, item := range items {
		if items[i] = address.Shown(item); items[i] == "" {
			return ""
		}
	}
	return strings.Join(items, ",")
}
