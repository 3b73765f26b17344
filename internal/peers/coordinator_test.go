package peers_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/peers"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// ran is a coordinator that started, and was last seen, so long ago.
func ran(instance, place string, started, seen time.Duration) peers.Coordinator {
	return peers.Coordinator{
		Instance: instance, Place: place, Version: "v1", Config: peers.NewConfiguration(nil),
		StartedAt: now.Add(-started), SeenAt: now.Add(-seen), State: peers.Running,
	}
}

func TestConfigurationsAreTold(t *testing.T) {
	t.Parallel()
	hashOf := func(values map[string]string) string { return peers.NewConfiguration(values).Hash }
	same := map[string]string{"a": "1", "b": "2"}
	if hashOf(same) != hashOf(maps.Clone(same)) || hashOf(same) == hashOf(map[string]string{"a": "12", "b": ""}) {
		t.Error("hashes do not tell configurations apart")
	}
	c := peers.NewConfiguration(map[string]string{"callbacks.allow": strings.Repeat("x", 1000)})
	if got := c.Values["callbacks.allow"]; !strings.HasPrefix(got, "sha256:") || len(got) > 30 {
		t.Errorf("a long value is shared as %q", got)
	}
	large := map[string]string{}
	for i := range 2000 {
		large[fmt.Sprintf("producers.p%d.target", i)] = "orders.shop.svc:9000"
	}
	c = peers.NewConfiguration(large)
	if c.Values != nil || c.Hash == "" {
		t.Errorf("of a large configuration %d keys are shared, with the hash %q", len(c.Values), c.Hash)
	}
}

func TestEndedCoordinatorsAreMissing(t *testing.T) {
	t.Parallel()
	stopped := ran("stopped", "c 9090", time.Hour, time.Minute)
	stopped.Stopped = true
	killed := ran("killed", "a 9090", time.Hour, 21*time.Second)
	restarted := ran("restarted", "b 9090", time.Hour, time.Minute)
	killed.Ended, restarted.Ended = true, true
	all := []peers.Coordinator{
		killed, restarted,
		ran("successor", "b 9090", 50*time.Second, 0),
		stopped,
		ran("silent", "d 9090", time.Hour, time.Minute), // Redis may be the silent side
	}
	peers.Arrange(all)
	s := peers.SurveyOf(all, now)
	if len(s.Missing) != 1 || s.Missing[0].Instance != "killed" {
		t.Errorf("missing are %v", s.Missing)
	}
	if len(s.Restarts) != 1 || s.Restarts["b 9090"] != 1 {
		t.Errorf("restarts are %v", s.Restarts)
	}
	var order []string
	for _, c := range all {
		order = append(order, c.Instance)
	}
	if got := fmt.Sprint(order); got != "[successor silent killed restarted stopped]" {
		t.Errorf("the order is %s", got)
	}
}

func TestRestartLoopsAreFound(t *testing.T) {
	t.Parallel()
	var all []peers.Coordinator
	for i, started := range []time.Duration{9 * time.Minute, 6 * time.Minute, 3 * time.Minute, time.Minute} {
		all = append(all, ran(fmt.Sprint("loop", i), "a 9090", started, started-time.Second))
		all = append(all, ran(fmt.Sprint("deployed", i), "b 9090", 15*started, 15*started-time.Second))
		all = append(all, ran(fmt.Sprint("replica", i), "c 9090", started, 0)) // side by side, with one name
	}
	peers.Arrange(all)
	s := peers.SurveyOf(all, now)
	if got := fmt.Sprint(s.Looping, s.Restarts); got != "[a 9090] map[a 9090:3 b 9090:2]" {
		t.Errorf("looping and restarted are %s", got)
	}
	if s := peers.SurveyOf(all, now.Add(4*time.Minute+time.Second)); len(s.Looping) > 0 {
		t.Errorf("after five minutes without a start %v loops", s.Looping)
	}
}

func TestVersionsAndConfigurationsAreCompared(t *testing.T) {
	t.Parallel()
	withConfig := func(c peers.Coordinator, values map[string]string) peers.Coordinator {
		c.Config = peers.NewConfiguration(values)
		return c
	}
	a := withConfig(ran("a", "a", time.Hour, 0), map[string]string{"confirm.after": "2s", "log.level": "debug"})
	b := withConfig(ran("b", "b", time.Hour, 0), map[string]string{"log.level": "debug"})
	c := withConfig(ran("c", "c", time.Hour, 0), map[string]string{"log.level": "debug"})
	gone := withConfig(ran("gone", "d", time.Hour, time.Minute), map[string]string{"log.level": "warn"})
	gone.Version, gone.State = "v0", peers.Missing
	s := peers.SurveyOf([]peers.Coordinator{a, b, c, gone}, now)
	if len(s.Versions) != 1 || len(s.Hashes) != 2 {
		t.Errorf("%d versions and %d configurations, want 1 and 2", len(s.Versions), len(s.Hashes))
	}
	if len(s.Drift) != 1 || s.Drift[0].Key != "confirm.after" || fmt.Sprint(s.Drift[0].Rarest()) != "[2s ]" {
		t.Errorf("the differences are %+v", s.Drift)
	}
	b.Config.Values, b.Version = nil, "v2"
	s = peers.SurveyOf([]peers.Coordinator{a, b}, now)
	if len(s.Versions) != 2 || len(s.Hashes) != 2 || len(s.Drift) > 0 {
		t.Errorf("with a configuration too large to share: %+v", s)
	}
}
