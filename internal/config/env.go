package config

import (
	"maps"
	"slices"
	"strings"
)

const envPrefix = "MSGHANDLER_"

// envOther says whether a variable with our prefix is no key: Kubernetes injects some for a service named msghandler,
// and the command line reads some itself.
func envOther(name string) bool {
	switch name {
	case "MSGHANDLER_CONFIG", "MSGHANDLER_SERVER", "MSGHANDLER_PORT",
		"MSGHANDLER_TLS", "MSGHANDLER_TLS_CA", "MSGHANDLER_TLS_CERT", "MSGHANDLER_TLS_KEY", "MSGHANDLER_TLS_NAME":
		return true
	}
	return strings.HasPrefix(name, "MSGHANDLER_SERVICE_") || strings.HasPrefix(name, "MSGHANDLER_PORT_")
}

// readEnv reads the variables that begin with MSGHANDLER_. An empty variable counts as not set: a compose file passes
// the empty text for a variable that the user did not set.
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
		meant := l.producerKey(variable)
		if name, known := names[variable]; known {
			meant = []string{name}
		}
		switch {
		case len(meant) == 0:
			l.problem(g, "", "is not a known variable"+envHint(variable, slices.Sorted(maps.Keys(names))))
		case v == "":
		case len(meant) > 1:
			l.problem(g, "", "may be "+strings.Join(meant, " or ")+", which look alike in the environment; set them in the file")
		default:
			l.offer(meant[0], g)
		}
	}
}

// producerKey reads MSGHANDLER_PRODUCERS_NAME_TARGET, _TRUST, _CALLERS, _TLS and _TOKEN_FILE. NAME means the producers
// of the file whose environment form is NAME. Without such a producer NAME is taken in lower case.
func (l *loading) producerKey(variable string) (names []string) {
	rest, is := strings.CutPrefix(variable, envPrefix+"PRODUCERS_")
	name, field := splitProducerVariable(rest)
	if !is || name == "" {
		return nil
	}
	for key := range l.given {
		if producer, _, ofProducer := splitProducerKey(key); ofProducer && envName(producer) == name {
			names = append(names, producersPrefix+producer+field)
		}
	}
	if len(names) == 0 {
		return []string{producersPrefix + strings.ToLower(name) + field}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// splitProducerVariable splits NAME_FIELD into NAME and .field. Without a known field, name is empty.
func splitProducerVariable(rest string) (name, field string) {
	for _, field := range producerFields {
		if name, is := strings.CutSuffix(rest, "_"+strings.ToUpper(field)); is {
			return name, "." + field
		}
	}
	return "", ""
}

// envName is the environment form of a producer's name.
func envName(producer string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(producer))
}
