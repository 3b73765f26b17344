package app

import (
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/slowness"
)

func TestSlownessHasCauseAndRemedy(t *testing.T) {
	t.Parallel()
	since := time.Date(2026, 11, 29, 2, 10, 0, 0, time.UTC)
	for _, c := range []struct {
		slow         slowness.Slow
		name, what   string
		remedy, hint string
	}{
		{
			slowness.Slow{Kind: slowness.Redis, Value: .2034, Usual: .002},
			"redis-slow",
			"Redis is slow: half of the scripts take 203 ms, usually up to 2 ms", "redis-cli --latency", "",
		},
		{
			slowness.Slow{Kind: slowness.Redis, Value: .2034, Usual: .0002},
			"redis-slow", "take 203 ms, usually up to 1 ms", "redis-cli --latency", "",
		},
		{
			slowness.Slow{Kind: slowness.Broker, Name: "events", Value: 6},
			"broker-slow",
			"broker events is slow: half of the acknowledgements take 6 s", "brokers.events.url", "",
		},
		{slowness.Slow{Kind: slowness.Broker, Value: 6}, "broker-slow", "broker (default) is slow", "amqp.url", ""},
		{
			slowness.Slow{Kind: slowness.Starved, Value: .62},
			"coordinator-starved",
			"the coordinator runs late: it did not run in 62 % of the time", "steal", "",
		},
		{
			slowness.Slow{Kind: slowness.Starved, Value: .62, Throttled: .9},
			"coordinator-starved", "runs late",
			"CPU limit", "resources.limits.cpu",
		},
		{
			slowness.Slow{Kind: slowness.Unknown, Name: "orders", Value: .333, Usual: .01},
			"producer-unknown",
			"producer orders does not know its messages: UNKNOWN among its answers is 33 %, usually up to 1 %", "replica",
			"--producer orders",
		},
		{
			slowness.Slow{Kind: slowness.Errors, Name: "orders", Value: .5},
			"producer-errors",
			"producer orders fails: errors among its answers are 50 %", "database", "--producer orders",
		},
		{
			slowness.Slow{Kind: slowness.Runaway, Name: "orders", Value: 1234, Usual: 20},
			"producer-runaway",
			"producer orders sends 1234 half messages a second, usually up to 20 half messages a second",
			"producers.orders.calls_per_second", "policy.calls_per_second",
		},
	} {
		c.slow.Since = since
		var f findings
		f.slow([]slowness.Slow{c.slow}, c.slow.OfProducer())
		if f.slow([]slowness.Slow{c.slow}, !c.slow.OfProducer()); len(f) != 1 {
			t.Fatalf("%+v is told as %+v", c.slow, f)
		}
		got := f[0]
		if got.Name != c.name || !strings.Contains(got.What, c.what) || got.Severity != warning || got.Since != since ||
			!strings.Contains(got.Remedy, c.remedy) || !strings.Contains(got.Remedy, c.hint) ||
			strings.ContainsAny(got.Remedy, "{}") {
			t.Errorf("%+v is told as %+v", c.slow, got)
		}
	}
}
