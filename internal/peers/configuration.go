package peers

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
)

// Configuration is a configuration in the form for other coordinators, without keys of a single process. All
// coordinators with the same configuration share one text, because each coordinator reads each description at each
// interval.
type Configuration struct {
	// Hash identifies the configuration.
	Hash string `json:"hash"`
	// Values are the values other than the defaults, by key, without secrets. Nil: too many to share.
	Values map[string]string `json:"values"`
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

// Describe writes the configuration for others, or an empty text where the configuration is too large to share.
func (c Configuration) Describe() (string, error) {
	if c.Values == nil {
		return "", nil
	}
	text, err := json.Marshal(c)
	return string(text), err
}

// Fill gives the configuration of a text to the coordinators that have its hash.
func Fill(all []Coordinator, text string) error {
	var c Configuration
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	for i := range all {
		if all[i].Config.Hash == c.Hash {
			all[i].Config = c
		}
	}
	return nil
}

// short is enough of a hash to tell configurations apart.
func short(sum [sha256.Size]byte) string { return hex.EncodeToString(sum[:6]) }
