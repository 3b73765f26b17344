package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/peers"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// startAs runs a coordinator of a version with keys of the configuration, until the test ends.
func startAs(t *testing.T, redis *servers.RedisServer, version string, keys map[string]string) *running {
	t.Helper()
	flags := map[string]string{
		"grpc.addr": "127.0.0.1:0", "http.addr": "127.0.0.1:0", "redis.url": redis.URL(), "amqp.url": embeddedtest.Broker(t),
	}
	for key, value := range keys {
		flags[key] = value
	}
	current, err := config.Open(config.Sources{Flags: flags})
	must.Succeed(t, err)
	log := &servers.Log{}
	a, err := app.New(t.Context(), current.Config, app.Deps{
		Version: version, Logger: slog.New(slog.NewTextHandler(log, nil)), Configuration: current,
	})
	must.Succeed(t, err)
	r := &running{App: a, log: log, ended: make(chan error, 1)}
	go func() { r.ended <- a.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v\n%s", err, log)
		}
	})
	r.awaitReady(t)
	return r
}

// seen are the coordinators in the answer of GetStats, by instance.
func (r *running) seen(t *testing.T) map[string]*adminv1.Coordinator {
	t.Helper()
	stats, err := r.admin(t).GetStats(t.Context(), &adminv1.GetStatsRequest{})
	must.Succeed(t, err)
	all := map[string]*adminv1.Coordinator{}
	for _, c := range stats.GetCoordinators() {
		all[c.GetInstance()] = c
	}
	return all
}

func TestCoordinatorsKnowEachOther(t *testing.T) {
	t.Parallel()
	redis, broker := servers.Redis(t), embeddedtest.Broker(t)
	changed := map[string]string{"confirm.after": "2s", "amqp.url": broker}
	first := startAs(t, redis, "v0", map[string]string{"amqp.url": broker})
	second := startAs(t, redis, "v1", changed)
	found := second.found(t)
	for name, want := range map[string]string{
		"coordinators-versions": "v0 at " + first.Instance() + "; v1 at " + second.Instance(),
		"coordinators-config": "confirm.after is the default at " + first.Instance() + ", 2s at " +
			second.Instance(),
	} {
		if !strings.Contains(found[name], want) {
			t.Errorf("%s says %q, want %q", name, found[name], want)
		}
	}
	all := second.seen(t)
	if c := all[first.Instance()]; c.GetState() != adminv1.CoordinatorState_COORDINATOR_STATE_RUNNING ||
		c.GetVersion() != "v0" || c.GetGrpcAddress() != first.GRPCAddr() || c.GetSelf() || !all[second.Instance()].GetSelf() {
		t.Errorf("the coordinators are %v", all)
	}
	second.holds(t, "msghandler_fleet_versions 2")
	second.holds(t, `msghandler_fleet_coordinators{state="running"} 2`)
	must.Succeed(t, first.Stop(context.Background()))
	third := startAs(t, redis, "v1", changed)
	if c := third.seen(t)[first.Instance()]; c.GetState() != adminv1.CoordinatorState_COORDINATOR_STATE_STOPPED {
		t.Errorf("the stopped coordinator is %v", c)
	}
	if found := third.found(t); found["coordinators-versions"] != "" || found["coordinators-config"] != "" {
		t.Errorf("a stopped coordinator counts: %v", found)
	}
}

func TestMissingAndRestartingCoordinatorsAreReported(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t)
	plant := func(instance, place string, started, seen time.Duration) {
		at := time.Now().Add(-seen)
		text, err := peers.Report{Coordinator: peers.Coordinator{
			Place: place, StartedAt: time.Now().Add(-started), Config: peers.NewConfiguration(nil),
		}}.Write(at)
		must.Succeed(t, err)
		redis.CLI("HSET", "msghandler:{00}:coordinators", instance+"/0a",
			fmt.Sprintf("%d\nrunning\n%s\n", at.UnixMilli(), text.Lasting))
	}
	plant("killed", "here :9090", time.Hour, 2*time.Minute)
	for i := range 4 {
		started := time.Duration(i+1) * time.Minute
		plant(fmt.Sprint("loop", i), "there :9090", started, started-time.Second)
	}
	r := startAs(t, redis, "v1", nil)
	if what := r.found(t)["coordinators-restarting"]; !strings.Contains(what, "again and again at there :9090") {
		t.Errorf("found is %q", what)
	}
	r.holds(t, `msghandler_fleet_coordinators{state="missing"} 2`) // killed, and the last of the loop; after 20 s
	r.holds(t, "msghandler_fleet_restart_loops 1")
	r.holds(t, "msghandler_fleet_restarts 3")
	if page := r.get(t, "/"); !strings.Contains(page, "killed") ||
		!strings.Contains(page, `<span class="mark bad">missing</span>`) {
		t.Errorf("the page is\n%s", page)
	}
}

func TestTheConfigurationInUseIsShown(t *testing.T) {
	t.Parallel()
	r := startAs(t, servers.Redis(t), "v1", map[string]string{
		"confirm.after": "2s", "events.webhook_token": "geheim", "producers.orders.target": "127.0.0.1:9000",
		"callbacks.allow": "127.0.0.1:*",
	})
	answer, err := r.admin(t).GetConfiguration(t.Context(), &adminv1.GetConfigurationRequest{})
	must.Succeed(t, err)
	values := map[string]*adminv1.ConfigurationValue{}
	for _, v := range answer.GetValues() {
		values[v.GetKey()] = v
	}
	if v := values["confirm.after"]; v.GetValue() != "2s" || v.GetDefaultValue() != "6s" || v.GetOrigin() == "" {
		t.Errorf("confirm.after is %v", v)
	}
	if v := values["producers.orders.target"]; v.GetValue() != "127.0.0.1:9000" {
		t.Errorf("the producer's target is %v", v)
	}
	if v := values["send.schedule"]; v.GetValue() == "" || v.GetOrigin() != "" {
		t.Errorf("a default is %v", v)
	}
	if text := answer.String(); strings.Contains(text, "geheim") || values["events.webhook_token"].GetValue() == "" {
		t.Errorf("a secret is shown, or hidden as if unset: %v", values["events.webhook_token"])
	}
}
