package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
)

const (
	// maxConfig bounds a shared configuration, in bytes. Above it only the hash is shared.
	maxConfig = 32 << 10
	// maxValue bounds a value of a shared configuration, in bytes. A longer value is shared as a hash.
	maxValue = 200
)

// Configuration is a configuration in the form for other coordinators, without keys of a single process.
type Configuration struct {
	// Hash identifies the configuration.
	Hash string `json:"hash"`
	// Values are the values other than the defaults, by key, without secrets. Nil: too many to share.
	Values map[string]string `json:"-"`
}

// NewConfiguration makes a configuration of the values other than the defaults, by key, without secrets.
func NewConfiguration(values map[string]string) Configuration {
	c := Configuration{Values: map[string]string{}}
	whole := sha256.New()
	size := 0
	for _, key := range slices.Sorted(maps.Keys(values)) {
		value := values[key]
		for _, part := range []string{key, value} {
			whole.Write([]byte(part))
			whole.Write([]byte{0})
		}
		if len(value) > maxValue {
			value = "sha256:" + short(sha256.Sum256([]byte(value)))
		}
		c.Values[key] = value
		size += len(key) + len(value)
	}
	if size > maxConfig {
		c.Values = nil
	}
	c.Hash = short([sha256.Size]byte(whole.Sum(nil)))
	return c
}

// short is enough of a hash to tell configurations apart.
func short(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:6]) }
