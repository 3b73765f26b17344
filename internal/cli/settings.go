package cli

import (
	"cmp"
	"reflect"
	"strconv"
	"strings"

	"github.com/msghandler/msghandler/internal/config"
)

// configFlags gives every key of the configuration as a flag. The parser reads flags from the fields of a struct, so one
// is made from the table of keys: a list of flags written down here would be a second table.
type configFlags struct {
	keys   []config.Key
	fields reflect.Value
}

func newConfigFlags() *configFlags {
	f := &configFlags{keys: config.Keys()}
	var fields []reflect.StructField
	for i, k := range f.keys {
		kind := reflect.TypeFor[*string]()
		if k.Bool() {
			kind = reflect.TypeFor[*bool]()
		}
		fields = append(fields, reflect.StructField{Name: "Key" + strconv.Itoa(i), Type: kind, Tag: flagTag(k)})
	}
	f.fields = reflect.New(reflect.StructOf(fields))
	return f
}

func flagTag(k config.Key) reflect.StructTag {
	tag := "name:" + strconv.Quote(k.Name) + " help:" + strconv.Quote(k.Meaning) + " group:" + strconv.Quote(k.Section())
	if !k.Bool() {
		tag += " placeholder:" + strconv.Quote(cmp.Or(k.Default, strings.ToUpper(k.Kind())))
	}
	return reflect.StructTag(tag)
}

// given returns the flags that were typed, by key.
func (f *configFlags) given() map[string]string {
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
		}
	}
	return typed
}

// load reads the configuration from all its sources.
func (s *session) load(flags map[string]string) (config.Config, error) {
	return config.Load(s.sources(flags))
}

// sources are where the configuration comes from.
func (s *session) sources(flags map[string]string) config.Sources {
	return config.Sources{File: cmp.Or(s.config, s.env("MSGHANDLER_CONFIG")), Env: s.Env, Flags: flags}
}

// env returns a variable; empty when it is not set.
func (s *session) env(name string) string {
	for _, pair := range s.Env {
		if v, found := strings.CutPrefix(pair, name+"="); found {
			return v
		}
	}
	return ""
}

// server returns the address of the coordinator that a command talks to: the one named, or that of the configuration, in
// which flags win.
func (s *session) server(named string, flags map[string]string) (string, error) {
	if addr := cmp.Or(named, s.env("MSGHANDLER_SERVER")); addr != "" {
		return addr, nil
	}
	c, err := s.load(flags)
	if err != nil {
		return "", err
	}
	// An address that means all interfaces, such as :9090, means this host when it is dialled.
	return c.GRPC.Addr, nil
}
