package fleet_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/fleet"
)

var now = time.Date(2026, 11, 26, 12, 0, 0, 0, time.UTC)

// ran is a coordinator that started, and was last seen, so long ago.
func ran(instance, place string, started, seen time.Duration) fleet.Coordinator {
	return fleet.Coordinator{
		Instance: instance, Place: place, Version: "v1", ConfigHash: "same", Config: map[string]string{},
		StartedAt: now.Add(-started), SeenAt: now.Add(-seen),
	}
}

func TestDescriptionsAreReadByOthers(t *testing.T) {
	t.Parallel()
	c := ran("a", "host 9090", time.Hour, 0)
	c.GRPC, c.HTTP, c.Stopped = "[::]:9090", "127.0.0.1:9091", true
	c.SetConfig(map[string]string{"confirm.after": "2s"})
	text, err := c.Describe(now)
	if err != nil {
		t.Fatal(err)
	}
	// The clock of the reader is a day ahead: only ages count.
	read, err := fleet.Read(text, 3*time.Second, now.Add(24*time.Hour))
	if err != nil || read.Config != nil {
		t.Errorf("each description carries the configuration %v, %v", read.Config, err)
	}
	all := []fleet.Coordinator{ran("b", "other 9090", time.Hour, 0), read}
	text, err = c.DescribeConfig()
	if err := errors.Join(err, fleet.ReadConfig(text, all)); err != nil || len(all[0].Config) > 0 {
		t.Errorf("a coordinator with another hash has the configuration %v, %v", all[0].Config, err)
	}
	read = all[1]
	c.StartedAt, c.SeenAt = c.StartedAt.Add(24*time.Hour-3*time.Second), c.SeenAt.Add(24*time.Hour-3*time.Second)
	if err != nil || !reflect.DeepEqual(read, c) {
		t.Errorf("read is %+v instead of %+v, %v", read, c, err)
	}
	if _, err := fleet.Read("no JSON", 0, now); err == nil || fleet.ReadConfig("no JSON", all) == nil {
		t.Error("a broken description is read")
	}
}

func TestConfigurationsAreTold(t *testing.T) {
	t.Parallel()
	hashOf := func(values map[string]string) string {
		var c fleet.Coordinator
		c.SetConfig(values)
		return c.ConfigHash
	}
	same := map[string]string{"a": "1", "b": "2"}
	if hashOf(same) != hashOf(maps.Clone(same)) || hashOf(same) == hashOf(map[string]string{"a": "12", "b": ""}) {
		t.Error("hashes do not tell configurations apart")
	}
	var c fleet.Coordinator
	c.SetConfig(map[string]string{"callbacks.allow": strings.Repeat("x", 1000)})
	if got := c.Config["callbacks.allow"]; !strings.HasPrefix(got, "sha256:") || len(got) > 30 {
		t.Errorf("a long value is shared as %q", got)
	}
	large := map[string]string{}
	for i := range 2000 {
		large[fmt.Sprintf("producers.p%d.target", i)] = "orders.shop.svc:9000"
	}
	c.SetConfig(large)
	if text, err := c.DescribeConfig(); text != "" || err != nil {
		t.Errorf("a large configuration is shared as %q, %v", text, err)
	}
	if c.Config != nil || c.ConfigHash == "" {
		t.Errorf("of a large configuration %d keys are shared, with the hash %q", len(c.Config), c.ConfigHash)
	}
}

func TestSilentCoordinatorsAreMissing(t *testing.T) {
	t.Parallel()
	stopped := ran("stopped", "c 9090", time.Hour, time.Minute)
	stopped.Stopped = true
	all := []fleet.Coordinator{
		ran("killed", "a 9090", time.Hour, 21*time.Second),
		ran("restarted", "b 9090", time.Hour, time.Minute),
		ran("successor", "b 9090", 50*time.Second, 0),
		stopped,
		ran("slow", "d 9090", time.Hour, 19*time.Second),
	}
	fleet.Arrange(all, now)
	s := fleet.SurveyOf(all, now)
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
	if got := fmt.Sprint(order); got != "[successor slow killed restarted stopped]" {
		t.Errorf("the order is %s", got)
	}
}

// missing names the others that a view counts as missing, so long after now.
func missing(v *fleet.View, after time.Duration) (names []string) {
	at := now.Add(after)
	for _, c := range v.Others(at) {
		if c.State(at) == fleet.Missing {
			names = append(names, c.Instance)
		}
	}
	return names
}

func TestNoCoordinatorIsMissingWithoutRedis(t *testing.T) {
	t.Parallel()
	all := []fleet.Coordinator{
		ran("dead", "a 9090", time.Hour, time.Minute), ran("killed", "b 9090", time.Hour, 0),
		ran("well", "c 9090", time.Hour, 0),
	}
	var v fleet.View
	read := func(after time.Duration, well time.Duration) {
		all[2].SeenAt = now.Add(well)
		v.Update(slices.Clone(all), now.Add(after))
	}
	read(0, 0)
	for _, step := range []struct {
		after, read, well time.Duration
		want              string
	}{
		{after: 4 * time.Second, want: "[dead]"},
		{after: 5 * time.Minute, want: "[dead]"},                                                     // Redis is away
		{after: 301 * time.Second, read: 301 * time.Second, want: "[dead]"},                          // and is back
		{after: 306 * time.Second, read: 306 * time.Second, well: 302 * time.Second, want: "[dead]"}, // the others come
		{after: 318 * time.Second, want: "[dead]"},                                                   // a second gap
		{after: 330 * time.Second, read: 330 * time.Second, well: 302 * time.Second, want: "[dead]"}, // and its end
		{after: 352 * time.Second, read: 352 * time.Second, well: 350 * time.Second, want: "[dead]"}, // a third
		{after: 361 * time.Second, read: 361 * time.Second, well: 360 * time.Second, want: "[dead]"},
		{after: 370 * time.Second, read: 370 * time.Second, well: 369 * time.Second, want: "[dead]"},
		{after: 373 * time.Second, read: 373 * time.Second, well: 372 * time.Second, want: "[dead killed]"},
	} {
		if step.read > 0 {
			read(step.read, step.well)
		}
		if got := fmt.Sprint(missing(&v, step.after)); got != step.want {
			t.Errorf("after %v missing are %s, want %s", step.after, got, step.want)
		}
	}
}

func TestRestartLoopsAreFound(t *testing.T) {
	t.Parallel()
	var all []fleet.Coordinator
	for i, started := range []time.Duration{9 * time.Minute, 6 * time.Minute, 3 * time.Minute, time.Minute} {
		all = append(all, ran(fmt.Sprint("loop", i), "a 9090", started, started-time.Second))
		all = append(all, ran(fmt.Sprint("deployed", i), "b 9090", 15*started, 15*started-time.Second))
		all = append(all, ran(fmt.Sprint("replica", i), "c 9090", started, 0)) // side by side, with one name
	}
	fleet.Arrange(all, now)
	s := fleet.SurveyOf(all, now)
	if got := fmt.Sprint(s.Looping, s.Restarts); got != "[a 9090] map[a 9090:3 b 9090:2]" {
		t.Errorf("looping and restarted are %s", got)
	}
	if s := fleet.SurveyOf(all, now.Add(4*time.Minute+time.Second)); len(s.Looping) > 0 {
		t.Errorf("after five minutes without a start %v loops", s.Looping)
	}
}

func TestVersionsAndConfigurationsAreCompared(t *testing.T) {
	t.Parallel()
	withConfig := func(c fleet.Coordinator, values map[string]string) fleet.Coordinator {
		c.SetConfig(values)
		return c
	}
	a := withConfig(ran("a", "a", time.Hour, 0), map[string]string{"confirm.after": "2s", "log.level": "debug"})
	b := withConfig(ran("b", "b", time.Hour, 0), map[string]string{"log.level": "debug"})
	c := withConfig(ran("c", "c", time.Hour, 0), map[string]string{"log.level": "debug"})
	gone := withConfig(ran("gone", "d", time.Hour, time.Minute), map[string]string{"log.level": "warn"})
	gone.Version = "v0"
	s := fleet.SurveyOf([]fleet.Coordinator{a, b, c, gone}, now)
	if len(s.Versions) != 1 || len(s.Hashes) != 2 {
		t.Errorf("%d versions and %d configurations, want 1 and 2", len(s.Versions), len(s.Hashes))
	}
	if len(s.Drift) != 1 || s.Drift[0].Key != "confirm.after" || fmt.Sprint(s.Drift[0].Rarest()) != "[2s ]" {
		t.Errorf("the differences are %+v", s.Drift)
	}
	b.Config, b.Version = nil, "v2"
	s = fleet.SurveyOf([]fleet.Coordinator{a, b}, now)
	if len(s.Versions) != 2 || len(s.Hashes) != 2 || len(s.Drift) > 0 {
		t.Errorf("with a configuration too large to share: %+v", s)
	}
}
