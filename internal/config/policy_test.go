package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
)

func TestProducersPolicyOverridesTheDefault(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{File: write(t, `
brokers:
  events: {url: "nats://127.0.0.1:4222"}
policy:
  exchanges: [shop.*]
  routing_keys: [a, b]
  calls_per_second: 100
  max_unfinished_bytes: 1MiB
limits: {unfinished: 7000, body: 2MiB}
producers:
  orders:
    exchanges: [orders, (default)]
    brokers: [(default), events]
    targets: ["*.orders.svc:9000"]
    max_body: 64KiB
    max_unfinished: 500
    max_unfinished_bytes: 0
    calls_per_second: 0
`)})
	must.Succeed(t, err)
	for producer, want := range map[string]config.Policy{
		"orders": {
			Targets: []string{"*.orders.svc:9000"}, Brokers: []string{"(default)", "events"},
			Exchanges: []string{"orders", "(default)"}, RoutingKeys: []string{"a", "b"}, MaxBody: 64 << 10,
			MaxUnfinished: 500,
		},
		"bills": {
			Exchanges: []string{"shop.*"}, RoutingKeys: []string{"a", "b"}, MaxBody: 2 << 20, MaxUnfinished: 7000,
			MaxUnfinishedBytes: 1 << 20, CallsPerSecond: 100,
		},
	} {
		if diff := cmp.Diff(want, c.PolicyOf(producer)); diff != "" {
			t.Errorf("policy of %s (-want +got):\n%s", producer, diff)
		}
	}
}

func TestReloadTakesWhatNeedsNoRestart(t *testing.T) {
	t.Parallel()
	file := write(t, `
redis: {url: "redis://:sesame@127.0.0.1/0"}
done: {retention: 5m}
producers:
  orders: {target: "dns:///orders:9000", calls_per_second: 10}
  bills: {max_unfinished: 7}
callbacks: {allow: ["orders:9000"]}
`)
	before, err := config.Open(config.Sources{File: file, Env: []string{"MSGHANDLER_POLICY_ROUTING_KEYS=x"}})
	must.Succeed(t, err)
	rewrite(t, file, `
redis: {url: "redis://:changed@127.0.0.1/0"}
producers:
  orders: {target: "dns:///orders:9001", calls_per_second: 20, exchanges: [a, b]}
callbacks: {allow: ["orders:9000", "bills:9000"]}
`)
	after, changes, err := before.Reload()
	must.Succeed(t, err)
	const masked = "redis://:xxxxx@127.0.0.1/0"
	want := []config.Change{
		{Key: "callbacks.allow", Old: "orders:9000", New: "orders:9000,bills:9000"},
		{Key: "done.retention", Old: "5m", New: "10m", Restart: true},
		{Key: "producers.bills.max_unfinished", Old: "7"},
		{Key: "producers.orders.calls_per_second", Old: "10", New: "20"},
		{Key: "producers.orders.exchanges", New: "a,b"},
		{Key: "producers.orders.target", Old: "dns:///orders:9000", New: "dns:///orders:9001", Restart: true},
		{Key: "redis.url", Old: masked, New: masked},
	}
	if diff := cmp.Diff(want, changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	c := &after.Config
	orders := c.PolicyOf("orders")
	if orders.CallsPerSecond != 20 || len(orders.Exchanges) != 2 || len(orders.RoutingKeys) != 1 ||
		len(c.Callbacks.Allow) != 2 || !strings.Contains(c.Redis.URL, "changed") {
		t.Errorf("a key that needs no restart is not taken: %+v, %v, %v", orders, c.Callbacks.Allow, c.Redis)
	}
	if c.Producers["orders"].Target != "dns:///orders:9000" || c.Done != before.Config.Done {
		t.Errorf("a key that needs a restart is taken: %+v, %v", c.Producers, c.Done)
	}
	kept, held, err := before.Reload("redis.url")
	if err != nil || kept.Config.Redis != before.Config.Redis || kept.Config.PolicyOf("orders").CallsPerSecond != 20 ||
		!held[len(held)-1].Restart {
		t.Errorf("a key that is kept: %+v, %+v, %v", kept.Config.Redis, held, err)
	}
	if _, again, err := after.Reload(); err != nil || len(again) != 2 {
		t.Errorf("the next reload tells %v, %v; want the two changes that wait for a restart", again, err)
	}
}

// The value of redis.url_file is what the file holds, and not its name.
func TestReloadFollowsFileOfRedis(t *testing.T) {
	t.Parallel()
	const first, next = "redis://:hunter2@127.0.0.1/0", "redis://:hunter3@127.0.0.2/0"
	in := secret(t, first)
	file := write(t, "redis: {url_file: "+in+"}")
	before, err := config.Open(config.Sources{File: file})
	must.Succeed(t, err)
	reloads := func(what, url string, restart bool, keep ...string) {
		t.Helper()
		after, changes, err := before.Reload(keep...)
		must.Succeed(t, err)
		want := []config.Change{{
			Key: "redis.url_file", Old: "redis://:xxxxx@127.0.0.1/0", New: "redis://:xxxxx@127.0.0.2/0", Restart: restart,
		}}
		if diff := cmp.Diff(want, changes); diff != "" || after.Config.Redis.URL != url {
			t.Errorf("%s: %s, changes (-want +got):\n%s", what, after.Config.Redis.URL, diff)
		}
	}
	rewrite(t, in, next)
	reloads("another content", next, false)
	reloads("another content that needs a restart", first, true, "redis.url")
	other := secret(t, next)
	rewrite(t, file, "redis: {url_file: "+other+"}")
	reloads("another file", next, false)
	reloads("another file that needs a restart", first, true, "redis.url")
	rewrite(t, in, "")
	if after, _, err := before.Reload("redis.url"); err != nil || after.Config.Redis.URL != first {
		t.Errorf("the value that stays in use is read again: %v", err)
	}
	if after, _, err := before.Reload(); err != nil || after.Config.SecretFile("redis.url") != other {
		t.Errorf("the file in use: %v", err)
	}
}

func TestReloadRefusesWhatCannotWorkYet(t *testing.T) {
	t.Parallel()
	file := write(t, "log: {level: warn}")
	current, err := config.Open(config.Sources{File: file})
	must.Succeed(t, err)
	for name, text := range map[string]string{
		"a broken file":             "policy: [",
		"a wrong value":             "policy: {calls_per_second: many}",
		"rules without their files": "grpc: {callers: ['dns:a'], tls_client_ca: ca.pem, tls_cert: c.pem, tls_key: k.pem}",
		"a broker of the next run":  "{policy: {brokers: [events]}, brokers: {events: {url: 'nats://127.0.0.1:4222'}}}",
	} {
		rewrite(t, file, text)
		if _, _, err := current.Reload(); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}

// TestReloadOpensNothing empties files: what no key grants is denied, and sources of identities need a restart.
func TestReloadOpensNothing(t *testing.T) {
	t.Parallel()
	const files = "grpc: {tls_cert: c.pem, tls_key: k.pem, tls_client_ca: ca.pem"
	for before, after := range map[string]string{
		"access: {admins: ['token:ops'], token_file: t}":           "access: {token_file: t}",
		files + ", callers: ['dns:a']}":                            files + "}",
		files + "}\nproducers: {a: {callers: ['dns:a']}}":          files + "}",
		files + "}\naccess: {viewers: ['dns:a']}":                  "",
		"access: {token_file: t, anonymous: false}":                "access: {token_file: t, anonymous: true}",
		"http: {user_header: X-U, trusted_proxies: [10.0.0.1/32]}": "",
	} {
		file := write(t, before)
		current, err := config.Open(config.Sources{File: file})
		must.Succeed(t, err)
		rewrite(t, file, after)
		next, _, err := current.Reload()
		if err == nil && (next.Config.Access.Anonymous || !next.Config.Identifies()) {
			t.Errorf("from %q to %q: strangers are let in: %+v", before, after, next.Config.Access)
		}
	}
}
