package config

import (
	"slices"
	"strings"
	"time"
)

// Key is a key of the configuration.
type Key struct {
	// Name is dotted, such as confirm.after.
	Name string
	// Default is written as a user would; empty is none.
	Default string
	// Meaning is the text for the reference and for --help, in few sentences.
	Meaning string
	// Secret says that the value may hold a password, which is never shown.
	Secret bool

	value value
}

// Env is the key's environment variable.
func (k Key) Env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Section is the part of the name before the first dot.
func (k Key) Section() string {
	section, _, _ := strings.Cut(k.Name, ".")
	return section
}

// Kind is the type of the value in a word or two, such as "duration".
func (k Key) Kind() string { return k.value.kind() }

// Allowed says which values are valid; empty when the kind is enough.
func (k Key) Allowed() string { return k.value.allowed() }

// Bool says whether the value is true or false.
func (k Key) Bool() bool {
	_, is := k.value.(*boolValue)
	return is
}

// List says whether the key takes several values.
func (k Key) List() bool {
	switch k.value.(type) {
	case *listValue, *durationsValue:
		return true
	}
	return false
}

// Keys lists every key in the order of the reference, except the keys of single producers.
func Keys() []Key {
	var c Config
	return c.keys()
}

// keys is the table of all keys, bound to the fields of c.
func (c *Config) keys() []Key {
	return withFiles(slices.Concat(
		c.GRPC.keys(), c.HTTP.keys(), c.Access.keys(), c.Redis.keys(), c.AMQP.keys(), c.Callbacks.keys(),
		c.Confirm.keys(), c.Send.keys(), c.Submit.keys(), c.DeleteBusiness.keys(), c.Done.keys(), c.Archive.keys(),
		c.Limits.keys(), c.Policy.keys(), c.Events.keys(), c.Shutdown.keys(), c.Log.keys(),
	))
}

const day = 24 * time.Hour
