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
	case "MSGHANDLER_CONFIG", "MSGHANDLER_CONTEXT", "MSGHANDLER_CONTEXTS", "MSGHANDLER_SERVER", "MSGHANDLER_PORT",
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
	for _, k := range Flags() {
		names[k.Env()] = k.Name
	}
	for _, pair := range slices.Sorted(slices.Values(env)) {
		variable, v, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(variable, envPrefix) || envOther(variable) {
			continue
		}
		g := given{values: []string{v}, origin: "environment", written: variable}
		meant := l.keysOfEntries(variable)
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

// keysOfEntries reads MSGHANDLER_PRODUCERS_NAME_TARGET, MSGHANDLER_BROKERS_NAME_URL and the like. NAME means the
// entries of the file whose environment form is NAME. Without one of them NAME is taken in lower case.
func (l *loading) keysOfEntries(variable string) (names []string) {
	pattern, written := patternOf(variable)
	if written == "" {
		return nil
	}
	for name := range l.given {
		if k, _ := Find(name); k.of != "" && k.section == pattern.section && envName(k.of) == written {
			names = append(names, pattern.entry(k.of).Name)
		}
	}
	if len(names) == 0 {
		return []string{pattern.entry(strings.ToLower(written)).Name}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// patternOf splits MSGHANDLER_SECTION_NAME_KEY. The name stays in the form of the environment; empty: it is none.
func patternOf(variable string) (pattern Key, name string) {
	for _, keys := range named {
		for _, of := range keys {
			for _, k := range withFile(of) {
				before, after, _ := strings.Cut(k.Env(), anyName)
				rest, in := strings.CutPrefix(variable, before)
				if name, has := strings.CutSuffix(rest, after); in && has && name != "" {
					return k, name
				}
			}
		}
	}
	return Key{}, ""
}

// envName is the environment form of the name of a producer, a broker or an outbox.
func envName(name string) string {
	return strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(name))
}
