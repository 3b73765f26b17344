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
		"MSGHANDLER_TLS", "MSGHANDLER_TLS_CA", "MSGHANDLER_TLS_CERT", "MSGHANDLER_TLS_KEY", "MSGHANDLER_TLS_NAME",
		"MSGHANDLER_TOKEN", "MSGHANDLER_TOKEN_FILE":
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
		meant := l.namedKeys(variable)
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

// namedKeys reads MSGHANDLER_PRODUCERS_NAME_TARGET, MSGHANDLER_BROKERS_NAME_URL and the like. NAME means the producers,
// brokers or outboxes of the file whose environment form is NAME. Without one of them NAME is taken in lower case.
func (l *loading) namedKeys(variable string) (names []string) {
	k, is := splitNamedVariable(variable)
	if !is {
		return nil
	}
	for key := range l.given {
		if known, named := splitNamedKey(key); named && known.prefix == k.prefix && envName(known.of) == k.of {
			names = append(names, namedKey{k.prefix, known.of, k.field}.String())
		}
	}
	if len(names) == 0 {
		return []string{namedKey{k.prefix, strings.ToLower(k.of), k.field}.String()}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// splitNamedVariable splits MSGHANDLER_SECTION_NAME_FIELD. The name stays in the form of the environment.
func splitNamedVariable(variable string) (k namedKey, is bool) {
	for prefix, fields := range namedFields {
		rest, in := strings.CutPrefix(variable, envPrefix+strings.ToUpper(strings.TrimSuffix(prefix, "."))+"_")
		for _, field := range fields {
			if name, has := strings.CutSuffix(rest, "_"+strings.ToUpper(field)); in && has && name != "" {
				return namedKey{prefix, name, field}, true
			}
		}
	}
	return namedKey{}, false
}

// envName is the environment form of the name of a producer, a broker or an outbox.
func envName(name string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}
