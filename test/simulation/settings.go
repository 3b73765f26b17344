package simulation

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// drawnSettings are the settings of a world's coordinators, as the seed draws them.
type drawnSettings struct {
	// keys are of the configuration, and schedules of the loops without a key.
	keys, schedules map[string]string
	// heartbeat is that of connections to the broker, and poll how often relays read their tables.
	heartbeat, poll time.Duration
	// rest is app.Bounds.Rest.
	rest int
}

// option is a key with the values of which a seed draws one.
type option struct {
	key    string
	values []string
}

// options are the keys that a seed draws. The first value of each is the default.
var options = []option{
	{"submit.trust", []string{"false", "false", "true"}},
	{"delete_business.when", []string{"before_publish", "after_ack"}},
	{"confirm.after", []string{"6s", "1s", "3s"}},
	{"confirm.attempts", []string{"6", "4", "8"}},
	{"confirm.backoff", []string{"5s,10s,30s", "1s,2s,5s,10s", "5s,30s"}},
	{"confirm.lease", []string{"30s", "10s"}},
	{"confirm.batch", []string{"200", "2"}},
	{"send.backoff", []string{"5s,30s,2m", "1s,2s,5s,10s,30s,30s,30s"}},
	{"send.lease", []string{"30s", "15s"}},
	{"send.batch", []string{"500", "3"}},
	{"done.retention", []string{"10m", "1m", "24h"}},
	{"archive.retention", []string{"0", "5m"}},
	{"redis.shards", []string{"1", "1", "2", "3"}},
	{"producers.called.max_unfinished", []string{"1000000", "1000000", "3"}},
}

// slowOptions take the place of options in a slow world.
var slowOptions = []option{
	{"confirm.after", []string{"6s", "1m", "10m"}},
	{"confirm.attempts", []string{"15", "4", "8"}},
	{"confirm.backoff", []string{"5s,10s,30s,1m,2m,5m", "1m,5m,30m", "10m,1h,2h"}},
	{"confirm.give_up_after", []string{"0s", "0s", "3h"}},
	{"confirm.lease", []string{"30s", "5m"}},
	{"send.backoff", []string{"5s,30s,2m", "1m,10m,1h"}},
	{"send.lease", []string{"30s", "5m"}},
	{"done.retention", []string{"10m", "1h", "24h"}},
	{"archive.retention", []string{"0", "5m", "3h"}},
	{"confirm.schedule", []string{"@every 30s", "@every 2m", "*/5 * * * *"}},
	{"send.schedule", []string{"@every 30s", "@every 2m", "*/5 * * * *"}},
}

// backgrounds are the loops that no message needs, and how often they pass by default. Most seeds slow them down: what
// they cost is most of the cost of an idle coordinator.
var backgrounds = map[string]time.Duration{
	"pulse": 250 * time.Millisecond, "health": 500 * time.Millisecond, "policy": time.Second, "memory": 5 * time.Second,
	"archive": 2 * time.Second, "sweep": 10 * time.Second,
}

// slowRest is how much less often the backgrounds pass in a slow world.
const slowRest = 240

// watching are the schedules of other loops in slow and small worlds. These loops watch and report only.
var watching = map[string]string{
	"slowness": "@every 10m", "settings": "@every 10m", "backlog": "@every 10m",
	"undecided": "@every 10m", "parked": "@every 10m", "unrelayed": "@every 10m", "letters": "@every 10m",
}

// drawSettings draws the settings. Where Redis forgets, the pulse that notices it is not slowed down.
func drawSettings(c Choices, p pace, forgets bool) drawnSettings {
	d := drawnSettings{
		keys: map[string]string{}, schedules: map[string]string{}, heartbeat: 10 * time.Second, poll: 5 * time.Second,
	}
	every := 1 + 2*c.Intn("passes", 3)
	for _, key := range []string{"confirm.schedule", "send.schedule"} {
		d.keys[key] = fmt.Sprintf("@every %ds", every)
	}
	drawn, rest := options, []int{1, 4, 16, 16, 16}[c.Intn("rest", 5)]
	if p.small {
		rest, d.rest = 16, 8
		maps.Copy(d.schedules, watching)
	}
	if p.slow() {
		drawn, rest = slices.Concat(options, slowOptions), slowRest
		d.heartbeat, d.poll = time.Duration(p.times)*time.Second, time.Duration(p.times)*time.Second
		d.rest = p.times / 4
		maps.Copy(d.schedules, watching)
		d.schedules["delete"] = "@every 5m"
	}
	for _, o := range drawn {
		d.keys[o.key] = o.values[c.Intn("key "+o.key, len(o.values))]
	}
	for name, often := range backgrounds {
		if forgets && name == "pulse" {
			continue
		}
		d.schedules[name] = "@every " + (time.Duration(rest) * often).String()
	}
	return d
}
