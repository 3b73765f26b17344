package commandline

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/address"
)

// ConfigFlags are the keys of the configuration as flags. The parser reads flags from the fields of a struct, so a
// struct is made from the table of keys: a list of flags here would be a second table.
type ConfigFlags struct {
	keys   []config.Key
	fields reflect.Value
}

// NewConfigFlags returns a flag for every key. --help lists those that listed accepts; nil accepts all. The others can
// be typed as well.
func NewConfigFlags(listed func(key string) bool) *ConfigFlags {
	f := &ConfigFlags{keys: config.Flags()}
	var fields []reflect.StructField
	for i, k := range f.keys {
		kind := reflect.TypeFor[*string]()
		switch {
		case k.Bool():
			kind = reflect.TypeFor[*bool]()
		case k.List():
			kind = reflect.TypeFor[[]string]()
		}
		tag := flagTag(k, listed != nil && !listed(k.Name))
		fields = append(fields, reflect.StructField{Name: "Key" + strconv.Itoa(i), Type: kind, Tag: tag})
	}
	f.fields = reflect.New(reflect.StructOf(fields))
	return f
}

// Beginning accepts the keys that begin with one of the texts.
func Beginning(with ...string) func(key string) bool {
	return func(key string) bool {
		return slices.ContainsFunc(with, func(text string) bool { return strings.HasPrefix(key, text) })
	}
}

func flagTag(k config.Key, hidden bool) reflect.StructTag {
	tag := "name:" + strconv.Quote(k.Name) + " help:" + strconv.Quote(k.Meaning) + " group:" + strconv.Quote(k.Section())
	if !k.Bool() {
		tag += ` sep:"none" placeholder:` + strconv.Quote(cmp.Or(k.Default, strings.ToUpper(k.Kind())))
	}
	if hidden {
		tag += ` hidden:""`
	}
	return reflect.StructTag(tag)
}

// Plugins returns the flags for a field of type kong.Plugins.
func (f *ConfigFlags) Plugins() kong.Plugins { return kong.Plugins{f.fields.Interface()} }

// Given returns the typed flags, by key. The values of a list that is given several times add up.
func (f *ConfigFlags) Given() map[string]string {
	typed := map[string]string{}
	for i, k := range f.keys {
		switch v := f.fields.Elem().Field(i).Interface().(type) {
		case *string:
			if v != nil {
				typed[k.Name] = *v
			}
		case *bool:
			if v != nil {
				typed[k.Name] = strconv.FormatBool(*v)
			}
		case []string:
			if v != nil {
				typed[k.Name] = strings.Join(v, ",")
			}
		}
	}
	return typed
}

// Load reads the configuration from all its sources.
func (s *Session) Load(flags map[string]string) (config.Config, error) {
	return config.Load(s.Sources(flags))
}

// Sources are where the configuration comes from.
func (s *Session) Sources(flags map[string]string) config.Sources {
	return config.Sources{File: cmp.Or(s.config, s.Variable("MSGHANDLER_CONFIG")), Env: s.Env, Flags: flags}
}

// Variable returns a variable of the environment; empty when the variable is not set.
func (s *Session) Variable(name string) string {
	for _, pair := range s.Env {
		if v, found := strings.CutPrefix(pair, name+"="); found {
			return v
		}
	}
	return ""
}

// CheckCoordinator refuses an address that no coordinator can have.
func CheckCoordinator(addr string) error {
	if err := address.CheckCoordinator(addr); err != nil {
		return fmt.Errorf("%q %w", addr, err)
	}
	return nil
}
