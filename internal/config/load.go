package config

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/typedname"
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
}

// loading is a configuration being put together.
type loading struct {
	config   Config
	keys     map[string]Key
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

func newLoading() *loading {
	l := &loading{config: Default(), keys: map[string]Key{}, given: map[string]given{}}
	for _, k := range l.config.keys() {
		l.keys[k.Name] = k
	}
	return l
}

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
	l.apply()
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
	if _, known := l.keys[name]; !known {
		if _, named := splitNamedKey(name); !named {
			l.problem(g, "", "is not a known key"+hint(name))
			return
		}
	}
	l.given[name] = g
}

// apply sets the fields from the recorded values.
func (l *loading) apply() {
	for _, name := range slices.Sorted(maps.Keys(l.given)) {
		g := l.given[name]
		l.checkTwice(name, g)
		if k, known := l.keys[name]; known {
			l.set(k, g)
			continue
		}
		named, _ := splitNamedKey(name)
		l.setNamed(named, g)
	}
}

func (l *loading) set(k Key, g given) {
	values := g.values
	if k.List() && len(values) == 1 {
		values = splitList(values[0])
	}
	if _, ofOne := splitNamedKey(k.Name); ofOne && k.List() && len(values) == 0 { // its owner may mean none
		l.problem(g, "", "is an empty list, and the list for all would count: name what is allowed, or remove the line")
		return
	}
	if !k.List() && len(values) != 1 {
		l.problem(g, k.shown(values), "takes one value, not a list")
		return
	}
	if err := k.value.set(values); err != nil {
		l.problem(g, k.shown(g.values), err.Error())
		return
	}
	l.notePrivate(k, g)
}

// A key of a single producer, broker, outbox or queue of dead letters is SECTION.NAME.FIELD with a field of the
// section's list; NAME may hold dots.
const (
	producersPrefix = "producers."
	brokersPrefix   = "brokers."
	outboxPrefix    = "outbox."
	lettersPrefix   = "dead_letters."
)

// namedFields are the fields of the sections with names, by their prefixes.
var namedFields = map[string][]string{
	producersPrefix: append([]string{"target", "trust", "callers", "tls", "token_file"}, policyFields...),
	brokersPrefix:   {"url", "url_file", "dead_letter_exchange"},
	outboxPrefix:    {"dsn", "dsn_file", "producer", "table", "shards", "poll", "workers"},
	lettersPrefix:   {"queue", "broker", "exchanges"},
}

// namedKey is a key of a section with names.
type namedKey struct{ prefix, of, field string }

func (k namedKey) String() string { return k.prefix + k.of + "." + k.field }

func splitNamedKey(name string) (k namedKey, is bool) {
	for prefix, fields := range namedFields {
		rest, in := strings.CutPrefix(name, prefix)
		if i := strings.LastIndex(rest, "."); in && i > 0 {
			return namedKey{prefix, rest[:i], rest[i+1:]}, slices.Contains(fields, rest[i+1:])
		}
	}
	return namedKey{}, false
}

func (l *loading) setNamed(k namedKey, g given) {
	what := map[string]func(string) string{
		producersPrefix: checkProducerName, brokersPrefix: checkBrokerName, outboxPrefix: checkOutboxName,
		lettersPrefix: checkLettersName,
	}[k.prefix](k.of)
	switch {
	case what != "":
		l.problem(g, "", what)
	case k.prefix == brokersPrefix:
		b := l.config.Brokers[k.of]
		l.set(b.key(k.field, k.String()), g)
		l.config.Brokers[k.of] = b
	case k.prefix == outboxPrefix:
		o, known := l.config.Outbox[k.of]
		if !known {
			o = DefaultOutbox()
		}
		l.set(o.key(k.field, k.String()), g)
		l.config.Outbox[k.of] = o
	case k.prefix == lettersPrefix:
		d, known := l.config.DeadLetters[k.of]
		if !known {
			d = DeadLetters{Queue: k.of}
		}
		l.set(d.key(k.field, k.String()), g)
		l.config.DeadLetters[k.of] = d
	default:
		p := l.config.Producers[k.of]
		l.set(Key{Name: k.String(), value: p.value(k.field)}, g)
		l.config.Producers[k.of] = p
	}
}

// key binds a field.
func (b *Broker) key(field, name string) Key {
	url := Key{Name: name, Secret: true, value: text(&b.URL, checkBrokerURL)}
	switch field {
	case "dead_letter_exchange":
		return Key{Name: name, value: text(&b.DeadLetterExchange, checkExchange)}
	case "url_file":
		return Key{Name: name, value: &secretFile{url}}
	}
	return url
}

// value binds a field.
func (p *Producer) value(field string) value {
	switch field {
	case "trust":
		p.Trust = new(bool)
		return flag(p.Trust)
	case "tls":
		p.TLS = new(bool)
		return flag(p.TLS)
	case "token_file":
		p.TokenFile = new(string)
		return text(p.TokenFile, checkFile)
	case "callers":
		return list(&p.Callers, 0, typedname.CheckCaller)
	}
	if slices.Contains(policyFields, field) {
		return p.policyValue(field)
	}
	return text(&p.Target, checkTarget)
}

// MaxBrokerName is how long the name of a broker may be, in bytes.
const MaxBrokerName = 64

func checkBrokerName(name string) string {
	if len(name) > MaxBrokerName || checkProducerName(name) != "" {
		return "names no broker: a name has 1 to 64 of A-Z a-z 0-9 . _ -"
	}
	return ""
}

func checkProducerName(name string) string {
	letter := func(r rune) bool { return notPrefixRune(r) || r == ':' }
	if len(name) > 100 || strings.ContainsFunc(name, letter) {
		return "names no producer: a name has 1 to 100 of A-Z a-z 0-9 . _ -"
	}
	return ""
}

func (l *loading) problem(g given, value, what string) {
	l.problems = append(l.problems, Problem{Key: g.written, Source: g.origin, Value: value, What: what})
}

// relation reports a key that contradicts another key.
func (l *loading) relation(name, format string, args ...any) {
	k := l.keys[name]
	g, set := l.given[name]
	if !set {
		g = given{values: []string{k.Default}, origin: "default", written: name}
	}
	l.problem(g, k.shown(g.values), fmt.Sprintf(format, args...))
}

// says names a key with its value and source.
func (l *loading) says(name string) string {
	k := l.keys[name]
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
