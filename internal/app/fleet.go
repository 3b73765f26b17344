package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/internal/server"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// fleetSchedule is how often this coordinator describes itself to the others.
var fleetSchedule = "@every " + peers.Interval.String()

// maxNamed bounds the names of coordinators in a finding.
const maxNamed = 4

// self describes this coordinator.
func (a *App) self(now time.Time) peers.Coordinator {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return peers.Coordinator{
		Instance: a.instance, Place: host + " " + a.GRPCAddr(), Version: a.version, GRPC: a.GRPCAddr(), HTTP: a.HTTPAddr(),
		StartedAt: a.startedAt, SeenAt: now, Config: a.reloader.shared(),
	}
}

// coordinators lists this coordinator and the others, as peers.Arrange arranges them.
func (a *App) coordinators(now time.Time) []peers.Coordinator {
	all := []peers.Coordinator{a.self(now)}
	if others := a.others.Load(); others != nil {
		all = append(all, *others...)
	}
	ended := map[string]bool{}
	for _, end := range a.runs.since(now.Add(-redisstore.RunMemory)) {
		ended[end.Instance] = true
	}
	peers.Arrange(all, ended)
	return all
}

// watchFleet describes this coordinator to the others through Redis, and reads their descriptions.
func (a *App) watchFleet(ctx context.Context, store *redisstore.Store) error {
	a.metrics.Fleet(func() console.Fleet {
		now := time.Now()
		return fleetMetrics(a.coordinators(now), now)
	})
	_ = a.shareSelf(ctx, store, false) // the loop retries, and logs the error
	return a.repeat("fleet", fleetSchedule, func(ctx context.Context) error { return a.shareSelf(ctx, store, false) })
}

// shareSelf hands the description of this coordinator to the others, and reads their descriptions. A stopped
// coordinator is not missing.
func (a *App) shareSelf(ctx context.Context, store *redisstore.Store, stopped bool) error {
	now := time.Now()
	self := a.self(now)
	self.Stopped = stopped
	text, err := self.Describe(now)
	if err != nil {
		return err
	}
	configuration, err := self.Config.Describe()
	if err != nil {
		return err
	}
	selves, err := store.ShareSelf(ctx, text)
	if err != nil {
		return err
	}
	configurations, err := store.ShareConfiguration(ctx, self.Config.Hash, configuration)
	if err != nil {
		return err
	}
	// A text that cannot be read comes from a version to come: the next version of this coordinator reads it.
	var others []peers.Coordinator
	for _, s := range selves {
		if c, err := peers.Read(s.Text, s.Ago, now); err == nil {
			others = append(others, c)
		}
	}
	for _, s := range append(configurations, redisstore.Shared{Text: configuration}) {
		_ = peers.Fill(others, s.Text)
	}
	a.others.Store(&others)
	return nil
}

// fleetMetrics counts coordinators for the metrics.
func fleetMetrics(all []peers.Coordinator, now time.Time) console.Fleet {
	m := console.Fleet{States: map[string]int{string(peers.Running): 0, string(peers.Missing): 0}}
	survey := peers.SurveyOf(all, now)
	for _, c := range all {
		if c.State == peers.Running {
			m.States[string(peers.Running)]++
		}
	}
	m.States[string(peers.Missing)] = len(survey.Missing)
	for _, n := range survey.Restarts {
		m.Restarts += n
	}
	m.Looping, m.Versions, m.Configurations = len(survey.Looping), len(survey.Versions), len(survey.Hashes)
	return m
}

// fleet reports what is wrong with the coordinators together. Coordinators that are missing are reported as unclean
// ends.
func (f *findings) fleet(all []peers.Coordinator, now time.Time) {
	survey := peers.SurveyOf(all, now)
	if len(survey.Looping) > 0 {
		f.add(trouble, "coordinators-restarting",
			fmt.Sprintf("coordinators start again and again at %s", named(survey.Looping)),
			"messages of a coordinator that ends wait for the end of its leases, and its capacity is missing", endsRemedy)
	}
	if len(survey.Versions) > 1 {
		f.add(warning, "coordinators-versions", "coordinators of several versions run: "+grouped(survey.Versions),
			"this is usual during a rolling upgrade only; new features wait until all coordinators have them",
			"finish the upgrade, or the way back")
	}
	if len(survey.Hashes) > 1 { // without differences, a configuration is too large to be compared by its keys
		f.add(warning, "coordinators-config",
			"coordinators have different configurations: "+cmp.Or(differences(survey.Drift), grouped(survey.Hashes)),
			"what happens to a message depends on the coordinator that works on it",
			"give all coordinators the same configuration; msghandler config --server=HOST:PORT shows what a coordinator uses")
	}
}

// differences names keys with their values, and coordinators that have the rare ones.
func differences(all []peers.Difference) string {
	var parts []string
	for i, d := range all {
		if i == maxNamed {
			parts = append(parts, fmt.Sprintf("%d further keys", len(all)-i))
			break
		}
		var values []string
		for _, value := range d.Rarest() {
			shown := value
			if value == "" {
				shown = "the default"
			}
			values = append(values, shown+" at "+named(d.Values[value]))
		}
		parts = append(parts, d.Key+" is "+strings.Join(values, ", "))
	}
	return strings.Join(parts, "; ")
}

// grouped names the coordinators of each group.
func grouped(groups map[string][]string) string {
	var parts []string
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		parts = append(parts, group+" at "+named(groups[group]))
	}
	return strings.Join(parts, "; ")
}

// named lists some names.
func named(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if more := len(names) - maxNamed; more > 0 {
		names = append(names[:maxNamed:maxNamed], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// fleetStats are the coordinators as the API tells of them.
func (a *App) fleetStats() []*adminv1.Coordinator {
	now := time.Now()
	all := a.coordinators(now)
	restarts := peers.SurveyOf(all, now).Restarts
	stats := make([]*adminv1.Coordinator, len(all))
	for i, c := range all {
		stats[i] = &adminv1.Coordinator{
			Instance: c.Instance, Version: c.Version, State: coordinatorStates[c.State],
			GrpcAddress: c.GRPC, HttpAddress: c.HTTP, Place: c.Place, Restarts: int64(restarts[c.Place]),
			StartTime: server.Moment(c.StartedAt), SeenTime: server.Moment(c.SeenAt), ConfigHash: c.Config.Hash,
			Self: c.Instance == a.instance,
		}
	}
	return stats
}

var coordinatorStates = map[peers.State]adminv1.CoordinatorState{
	peers.Running: adminv1.CoordinatorState_COORDINATOR_STATE_RUNNING,
	peers.Missing: adminv1.CoordinatorState_COORDINATOR_STATE_MISSING,
	peers.Stopped: adminv1.CoordinatorState_COORDINATOR_STATE_STOPPED,
}

// configuration is the configuration in use as the API tells of it.
func (a *App) configuration() *adminv1.GetConfigurationResponse {
	answer := &adminv1.GetConfigurationResponse{Instance: a.instance, Version: a.version}
	if source := a.reloader.current(); source != nil {
		for _, v := range source.Effective() {
			answer.Values = append(answer.Values, &adminv1.ConfigurationValue{
				Key: v.Key, Value: v.Value, DefaultValue: v.Default, Origin: v.Origin, NeedsRestart: v.Restart,
			})
		}
	}
	return answer
}
