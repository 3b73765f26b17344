package config

import (
	"maps"
	"slices"
	"strings"
)

const envPrefix = "MSGHANDLER_"

// envOthers are variables with our prefix that are no keys: what Kubernetes injects for a service named msghandler, and
// what the command line reads itself.
func envOther(name string) bool {
	switch name {
	case "MSGHANDLER_CONFIG", "MSGHANDLER_SERVER", "MSGHANDLER_PORT":
		return true
	}
	return strings.HasPrefix(name, "MSGHANDLER_SERVICE_") || strings.HasPrefix(name, "MSGHANDLER_PORT_")
}

// readEnv takes the variables that begin with MSGHANDLER_. An empty one counts as not set: that is what a compose file
// passes on for a variable that the user did not set.
func (l *loading) readEnv(env []string) {
	names := map[string]string{}
	for name := range l.keys {
		names[l.keys[name].Env()] = name
	}
	for _, pair := range slices.Sorted(slices.Values(env)) {
		variable, v, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(variable, envPrefix) || envOther(variable) {
			continue
		}
		g := given{values: []string{v}, origin: "environment", written: variable}
		name, known := names[variable]
		if !known {
			name, known = l.producerKey(variable)
		}
		switch {
		case !known:
			l.problem(g, "", "is not a known variable"+envHint(variable, slices.Sorted(maps.Keys(names))))
		case v != "":
			l.offer(name, g)
		}
	}
}

// producerKey reads MSGHANDLER_PRODUCERS_NAME_TARGET and _TRUST. A name that the file has and that looks like NAME in the
// environment is meant; otherwise the name is taken in small letters.
func (l *loading) producerKey(variable string) (name string, is bool) {
	rest, is := strings.CutPrefix(variable, envPrefix+"PRODUCERS_")
	i := strings.LastIndex(rest, "_")
	if !is || i <= 0 {
		return "", false
	}
	field := strings.ToLower(rest[i+1:])
	for key := range l.given {
		if producer, _, ofProducer := splitProducerKey(key); ofProducer && envName(producer) == rest[:i] {
			name = producersPrefix + producer + "." + field
		}
	}
	if name == "" {
		name = producersPrefix + strings.ToLower(rest[:i]) + "." + field
	}
	_, _, is = splitProducerKey(name)
	return name, is
}

// envName is a producer's name as an environment variable can hold it.
func envName(producer string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(producer))
}
