package config

import (
	_ "embed"
	"reflect"
	"slices"
	"strings"
)

// Key is a key of the configuration: a field of Config with the tag key. The tags of a field say all about its key,
// except the meaning, which stands in meanings.txt:
//
//	key      the last part of the name; of a struct, what its keys begin with
//	but      of a struct: the name of one of its keys, and another name for it, or none
//	default  the default, as a user would write it; NAME is the name of the entry
//	check    the check of a text, or of each text of a list, among checks
//	bounds   the least and the largest number, size or duration
//	oneof    the valid texts
//	some     the list must not be empty
//	secret   the value may hold a password; the key with _file behind its name takes a file with the value
//	reload   the value takes effect without a restart
//	as       in Producer: the key whose value the field replaces for one producer; the other tags are those of that key
//
// The tag names makes a map of Config a section with names, such as producers.
type Key struct {
	// Name is dotted, such as confirm.after. In a section with names the second part is the name, or NAME for any.
	Name string
	// Default is written as a user would; empty is none.
	Default string
	// As is the key that counts where this key of a producer is not set; empty for all other keys.
	As string
	// Meaning is the text for the reference and for --help, in few sentences.
	Meaning string
	// Secret says that the value may hold a password, which is never shown.
	Secret bool

	tags reflect.StructTag
	// kindOf is the type of the value, without a pointer.
	kindOf reflect.Type
	// section is the place of the section in Config, and field that of the field in the section, or in an entry.
	section int
	field   []int
	// of is the name of the entry in a section with names; empty elsewhere.
	of string
	// reload says that the value takes effect without a restart.
	reload bool
	// inFile says that the value is the name of a file with the value.
	inFile bool
	// least and most bound a number.
	least, most int64
}

// anyName stands for any name in the keys of sections with names.
const anyName = "NAME"

// fileSuffix makes the name of the key of a file from the name of a key with a secret.
const fileSuffix = "_file"

// Env is the key's environment variable.
func (k Key) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Section is the part of the name before the first dot.
func (k Key) Section() string {
	section, _, _ := strings.Cut(k.Name, ".")
	return section
}

// last is the part of the name behind the last dot.
func (k Key) last() string { return k.Name[strings.LastIndexByte(k.Name, '.')+1:] }

// InFile is the key of a file with the value of a secret.
func (k Key) InFile() Key {
	k.Meaning = "File with the value of " + k.Name + ", instead of " + k.Name + ". A newline at its end does not count."
	k.Name += fileSuffix
	k.Secret, k.inFile, k.Default = false, true, ""
	return k
}

// entry returns the key of an entry of a section with names.
func (k Key) entry(name string) Key {
	k.Name, k.of = strings.Replace(k.Name, "."+anyName+".", "."+name+".", 1), name
	if k.Default == anyName {
		k.Default = name
	}
	return k
}

// table has the keys of all sections; named has those of the sections with names, by section.
var table, named = readTags()

// readTags makes the keys of the tags of Config.
func readTags() (plain []Key, ofEntries map[string][]Key) {
	ofEntries = map[string][]Key{}
	r := tagReader{meanings: readMeanings(), known: map[string]Key{}}
	config := reflect.TypeFor[Config]()
	for i := range config.NumField() {
		f := config.Field(i)
		section := f.Tag.Get("key")
		switch {
		case section == "":
		case f.Type.Kind() == reflect.Map:
			ofEntries[section] = r.fields(f.Type.Elem(), i, section+"."+anyName+".")
		default:
			plain = append(plain, r.fields(f.Type, i, section+".")...)
		}
	}
	return plain, ofEntries
}

// tagReader makes keys of tags.
type tagReader struct {
	meanings map[string]string
	known    map[string]Key
}

// fields are the keys of the fields of a section, or of an entry, whose names begin with prefix.
func (r *tagReader) fields(t reflect.Type, section int, prefix string) (keys []Key) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, is := f.Tag.Lookup("key")
		k := Key{Name: prefix + name, tags: f.Tag, kindOf: f.Type, section: section, field: []int{i}}
		switch {
		case !is:
		case f.Type.Kind() == reflect.Struct:
			keys = append(keys, r.shared(k, f)...)
		default:
			keys = append(keys, r.complete(k))
		}
	}
	return keys
}

// shared are the keys of a field whose struct several sections share.
func (r *tagReader) shared(of Key, f reflect.StructField) (keys []Key) {
	prefix := of.Name
	for i := range f.Type.NumField() {
		inner := f.Type.Field(i)
		k := of
		k.Name, k.tags, k.kindOf = prefix+inner.Tag.Get("key"), inner.Tag, inner.Type
		k.field = append(slices.Clone(of.field), i)
		if r.rename(&k, prefix, f.Tag) {
			keys = append(keys, r.complete(k))
		}
	}
	return keys
}

// rename takes another name for a key of a shared struct from the tag of the struct's field, such as
// but:"ca=client_ca". With no name behind the = there is no such key.
func (r *tagReader) rename(k *Key, prefix string, of reflect.StructTag) bool {
	name, other, _ := strings.Cut(of.Get("but"), "=")
	if k.Name != prefix+name {
		return true
	}
	k.Name = prefix + other
	return other != ""
}

// complete reads the tags of a key.
func (r *tagReader) complete(k Key) Key {
	if k.kindOf.Kind() == reflect.Pointer {
		k.kindOf = k.kindOf.Elem()
	}
	own := k.tags
	k.As = own.Get("as")
	if of, is := r.known[k.As]; is {
		k.tags, k.reload = of.tags, of.reload
		k.Meaning = k.As + " of one producer."
	} else {
		k.Default, k.Meaning = k.tags.Get("default"), r.meanings[k.Name]
		if k.kindOf.Kind() == reflect.Bool && k.Default == "" {
			k.Default = "false"
		}
	}
	k.reload = k.reload || own.Get("reload") != ""
	k.Secret = k.tags.Get("secret") != ""
	if least, most, is := strings.Cut(k.tags.Get("bounds"), " "); is {
		n := k.number()
		k.least, _ = n.read(least) // the tests read the bounds of every key
		k.most, _ = n.read(most)
	}
	r.known[k.Name] = k
	return k
}

//go:embed meanings.txt
var meanings string

// readMeanings reads the meanings of the keys: a key in a line, and its meaning in the lines below, which begin with
// spaces.
func readMeanings() map[string]string {
	all, key := map[string]string{}, ""
	for line := range strings.Lines(meanings) {
		text := strings.TrimSpace(line)
		switch {
		case text == "":
		case !strings.HasPrefix(line, " "):
			key = text
		default:
			all[key] = strings.TrimSpace(all[key] + " " + text)
		}
	}
	return all
}

// Keys lists every key in the order of the reference, except those of sections with names and those of files.
func Keys() []Key { return slices.Clone(table) }

// NamedKeys lists the keys of a section with names, such as producers.
func NamedKeys(section string) []Key { return slices.Clone(named[section]) }

// Flags lists Keys, and behind each secret the key of its file.
func Flags() (keys []Key) {
	for _, k := range table {
		keys = append(keys, withFile(k)...)
	}
	return keys
}

func withFile(k Key) []Key {
	if k.Secret {
		return []Key{k, k.InFile()}
	}
	return []Key{k}
}

// Find returns the key with a name, which may be of an entry of a section with names, or of a file.
func Find(name string) (Key, bool) {
	if k, is := findPlain(name); is {
		return k, true
	}
	section, rest, _ := strings.Cut(name, ".")
	dot := strings.LastIndexByte(rest, '.')
	if dot <= 0 {
		return Key{}, false
	}
	for _, pattern := range named[section] {
		for _, k := range withFile(pattern) {
			if k.last() == rest[dot+1:] {
				return k.entry(rest[:dot]), true
			}
		}
	}
	return Key{}, false
}

// findPlain returns the key with a name in a section without names.
func findPlain(name string) (Key, bool) {
	for _, k := range table {
		if k.Name == name {
			return k, true
		}
		if k.Secret && k.Name+fileSuffix == name {
			return k.InFile(), true
		}
	}
	return Key{}, false
}

// isSection says whether a name leads to keys.
func isSection(name string) bool {
	_, is := named[name]
	return is || slices.ContainsFunc(table, func(k Key) bool { return strings.HasPrefix(k.Name, name+".") })
}

// Default returns the configuration with nothing set.
func Default() Config {
	var c Config
	of := reflect.ValueOf(&c).Elem()
	for i := range of.NumField() {
		if f := of.Field(i); f.Kind() == reflect.Map {
			f.Set(reflect.MakeMap(f.Type()))
		}
	}
	for _, k := range table {
		k.setDefault(of.Field(k.section))
	}
	return c
}

// setDefault sets the field of a section, or of an entry, to the default.
func (k Key) setDefault(of reflect.Value) {
	if k.Default == "" {
		return
	}
	v, err := k.parse(split(k))
	if err != nil {
		panic("the default of " + k.Name + " is wrong: " + err.Error())
	}
	of.FieldByIndex(k.field).Set(v)
}

// DefaultOutbox is an outbox with nothing set.
func DefaultOutbox() Outbox {
	var o Outbox
	for _, k := range named["outbox"] {
		k.setDefault(reflect.ValueOf(&o).Elem())
	}
	return o
}

// set puts the values into the field of the key. An entry that a source names is there without a value too, so that the
// check of the relations says what the entry lacks.
func (k Key) set(c *Config, values []string) error {
	v, err := k.read(values)
	if err != nil {
		return err
	}
	section := reflect.ValueOf(c).Elem().Field(k.section)
	if k.of == "" {
		k.put(section, v)
		return nil
	}
	entry := reflect.New(section.Type().Elem()).Elem()
	if known := section.MapIndex(reflect.ValueOf(k.of)); known.IsValid() {
		entry.Set(known)
	} else {
		for _, of := range named[k.Section()] {
			of.entry(k.of).setDefault(entry)
		}
	}
	k.put(entry, v)
	section.SetMapIndex(reflect.ValueOf(k.of), entry)
	return nil
}

// put puts a value, if there is one, into the field of a section or of an entry.
func (k Key) put(of, v reflect.Value) {
	if !v.IsValid() {
		return
	}
	field := of.FieldByIndex(k.field)
	if field.Kind() == reflect.Pointer {
		field.Set(reflect.New(k.kindOf))
		field = field.Elem()
	}
	field.Set(v)
}

// split returns the default as the values for parse.
func split(k Key) []string {
	if !k.List() {
		return []string{k.Default}
	}
	return splitList(k.Default)
}
