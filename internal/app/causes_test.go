package app_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/servers"
)

// causes are the causes of the failing checks, as /readyz tells them.
func (r *running) causes(t *testing.T) map[string]cause.Cause {
	t.Helper()
	_, body := r.ready()
	var answer struct {
		Checks []struct {
			Name  string
			Cause *cause.Cause
		}
	}
	if err := json.Unmarshal([]byte(body), &answer); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	causes := map[string]cause.Cause{}
	for _, check := range answer.Checks {
		if check.Cause != nil {
			causes[check.Name] = *check.Cause
		}
	}
	return causes
}

// wantCause waits until a check fails for a cause.
func (r *running) wantCause(t *testing.T, check, name, remedy string) {
	t.Helper()
	servers.Eventually(t, time.Minute, "the check "+check+" names "+name, func() bool {
		got := r.causes(t)[check]
		return got.Name == name && strings.Contains(got.Remedy, remedy)
	})
}

// A check that leaves the coordinator ready is a finding of the same name as well.
func TestFailingChecksNameTheirCauses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change        func(*config.Config)
		check, remedy string
	}{
		"rabbitmq-away": {func(c *config.Config) {
			c.AMQP.URLs = []string{"amqp://guest:guest@" + nobodyAt(t) + "/"}
		}, "rabbitmq", "start RabbitMQ, or set amqp.url"},
		"rabbitmq-vhost": {func(c *config.Config) {
			c.AMQP.URLs = []string{embeddedtest.Broker(t) + "nowhere"}
		}, "rabbitmq", "create the virtual host"},
		"broker-away": {func(c *config.Config) {
			c.Brokers = map[string]config.Broker{"logs": {URL: "nats://" + nobodyAt(t)}}
		}, "broker logs", "brokers.logs.url"},
		"outbox-away": {withOutbox("mysql://u:p@" + nobodyAt(t) + "/d"), "outbox shop", "outbox.shop.dsn"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := start(t, settings(c.change))
			r.wantCause(t, c.check, name, c.remedy)
			if what := r.found(t)[name]; !strings.Contains(what, c.check) {
				t.Errorf("the finding is %q", what)
			}
		})
	}
}

// Another server was promoted: writing to this one, or writing settings into it, would split the data.
func TestPromotedReplicaNamesItsMaster(t *testing.T) {
	t.Parallel()
	redis, other := servers.Redis(t), servers.Redis(t)
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = redis.URL() }))
	r.awaitReady(t)
	host, port, _ := strings.Cut(other.Addr, ":")
	redis.CLI("REPLICAOF", host, port)
	r.wantCause(t, "redis writes", "redis-replica", "do not make the replica writable")
}

func TestRotatedPasswordOfRedisIsNamed(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t)
	redis.CLI("ACL", "SETUSER", "orders", "on", ">new", "~*", "&*", "+@all")
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = "redis://orders:old@" + redis.Addr + "/0" }))
	r.wantCause(t, "redis", "redis-login", "set the present user and password in redis.url")
}
