package doctor

import (
	"slices"
	"strings"

	"github.com/msghandler/msghandler/internal/config"
)

// The sections of the configuration that name servers and producers. Their defaults are guesses: no coordinator need
// use them.
const (
	sectionCallbacks = "callbacks"
	sectionRedis     = "redis"
	sectionBroker    = "amqp"
)

// Sections are the possible values of Examination.Defaults.
func Sections() []string { return []string{sectionCallbacks, sectionRedis, sectionBroker} }

// guesses are the main keys of the sections, and the areas whose findings depend on the keys.
var guesses = map[string]struct{ key, area string }{
	sectionCallbacks: {"callbacks.allow", areaSettings},
	sectionRedis:     {"redis.url", areaRedis},
	sectionBroker:    {"amqp.url", areaBroker},
}

// ofDefaults notes which sections are defaults, and turns troubles that depend on the sections into warnings: perhaps
// no coordinator has this configuration. Where a coordinator serves, and the servers at the defaults are well, the
// defaults are most likely the coordinator's.
func (e *Examination) ofDefaults(sections []string, found []Finding) []Finding {
	var keys []string
	for _, section := range sections {
		guess := guesses[section]
		if !slices.Contains(e.Defaults, section) {
			continue
		}
		keys = append(keys, guess.key)
		for i := range found {
			if f := &found[i]; f.Area == guess.area && f.Severity == Trouble {
				f.Severity = Warning
				f.What += " (" + guess.key + " is the default, which was not given)"
			}
		}
	}
	if len(keys) == 0 {
		return found
	}
	examined := "the defaults of " + strings.Join(keys, ", ") + " are examined"
	if well(found, areaRedis, areaBroker, areaCoordinator) {
		for i := range found {
			if f := &found[i]; f.Area == areaSettings && f.Severity == OK {
				f.What += "; " + examined
			}
		}
		return found
	}
	r := report{area: areaSettings}
	r.warn(
		"configuration-defaults",
		"no configuration was given: "+examined,
		"a coordinator with a configuration of its own may be well, or in trouble, where this says otherwise",
		"give the configuration of the coordinator: --config FILE, its environment, or flags such as --redis.url",
	)
	return append(r.all, found...)
}

// well says whether all areas were examined and have no warning.
func well(found []Finding, areas ...string) bool {
	for _, area := range areas {
		of := func(f Finding) bool { return f.Area == area }
		if !slices.ContainsFunc(found, of) ||
			slices.ContainsFunc(found, func(f Finding) bool { return of(f) && f.Severity > Note }) {
			return false
		}
	}
	return true
}

// open allows every target if callbacks.allow is not configured: the operator typed the target.
func (e *Examination) open(settings config.Config) config.Config {
	if slices.Contains(e.Defaults, sectionCallbacks) {
		settings.Callbacks.Allow = []string{"*:*"}
		settings.Callbacks.Networks = []string{"0.0.0.0/0", "::/0"}
	}
	return settings
}
