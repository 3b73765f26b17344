package config

import (
	"maps"
	"slices"
)

// Value is a key with the value in use. The texts show no secrets.
type Value struct {
	Key, Value string
	// Default is the value without any source.
	Default string
	// Origin is where the value comes from: FILE:LINE, the environment variable or the flag; empty for the default.
	Origin string
	// Restart says that another value takes effect with the next start only.
	Restart bool
}

// ofOneProcess are the keys whose values differ between coordinators of the same configuration.
var ofOneProcess = []string{"grpc.addr", "http.addr"}

// OfOneProcess says whether the values of a key differ between coordinators of the same configuration.
func OfOneProcess(key string) bool { return slices.Contains(ofOneProcess, key) }

// Effective lists the values of all keys in use, in the order of the reference; then the keys of single producers,
// brokers and outboxes, sorted. Keys of files are listed where they are set.
func (c *Current) Effective() []Value {
	var values []Value
	listed := map[string]bool{}
	add := func(k Key) {
		if _, is := c.given[k.Name]; k.inFile && !is || listed[k.Name] {
			return
		}
		listed[k.Name] = true
		values = append(values, Value{
			Key: k.Name, Value: k.told(k.valuesIn(c.given)), Default: k.told(split(k)), Origin: c.given[k.Name].origin,
			Restart: !k.reload,
		})
	}
	for _, k := range Flags() {
		add(k)
	}
	for _, name := range slices.Sorted(maps.Keys(c.given)) {
		k, _ := Find(name)
		add(k)
	}
	return values
}

// Shared has the values that differ from their defaults, by key, except keys that belong to one process.
func (c *Current) Shared() map[string]string {
	shared := map[string]string{}
	for _, v := range c.Effective() {
		if v.Value != v.Default && !OfOneProcess(v.Key) {
			shared[v.Key] = v.Value
		}
	}
	return shared
}
