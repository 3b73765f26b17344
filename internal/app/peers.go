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
	"github.com/msghandler/msghandler/internal/events"
	"github.com/msghandler/msghandler/internal/peers"
	"github.com/msghandler/msghandler/internal/server"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

const (
	// maxNamed bounds the names of coordinators in a finding.
	maxNamed = 4
	// endsLately is how long ago an end counts for the metric, and for a crash loop.
	endsLately = 10 * time.Minute
	// leaveTimeout bounds the wait of a stop for an unavailable Redis.
	leaveTimeout = time.Second
)

// newPeers builds what knows the other coordinators, without a report of them yet.
func (a *App) newPeers() *peers.Peers {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return peers.New(peers.Config{
		Interval: a.peersInterval(),
		Self: func(now time.Time) peers.Coordinator {
			return peers.Coordinator{
				Instance: a.process.instance, Place: host + " " + a.GRPCAddr(), Version: a.process.version, GRPC: a.GRPCAddr(),
				HTTP: a.HTTPAddr(), StartedAt: a.process.startedAt, SeenAt: now, Config: a.reloader.shared(),
			}
		},
		Refusals:  a.metrics.Refusals,
		Counts:    a.metrics.Report,
		Problems:  a.problems,
		Attending: func() []string { return a.attendance.Producers() }, // built later
		Ended:     a.reportEnds,
	})
}

// peersInterval is how often each coordinator reports to the others.
func (a *App) peersInterval() time.Duration { return time.Duration(a.bounds.Rest) * peers.Interval }

// watchPeers exchanges reports with the other coordinators through Redis.
func (a *App) watchPeers(ctx context.Context, store *redisstore.Store) error {
	a.metrics.Fleet(func() console.Fleet {
		now := time.Now()
		return fleetMetrics(a.peers.Coordinators(now), now)
	})
	a.metrics.UncleanEnds(func() int { return len(a.peers.Ends(endsLately, time.Now())) })
	a.peers.Doubt(time.Now())
	a.noteLife("coordinator-started", "started, version "+a.process.version, a.process.startedAt)
	_ = a.peers.Exchange(ctx, store) // the loop retries, and logs the error
	return a.repeat("peers", "@every "+a.peersInterval().String(), func(ctx context.Context) error {
		return a.peers.Exchange(ctx, store)
	})
}

// noteLife lets the record of problems have the start or the stop of this coordinator.
func (a *App) noteLife(name, what string, at time.Time) {
	a.peers.Note(peers.Problem{
		Name: name, What: "the coordinator " + what, Since: at, Until: at,
	})
}

// reportEnds reports coordinators that ended without a clean stop.
func (a *App) reportEnds(unreported []peers.End) {
	last := unreported[0]
	a.logger.Warn(
		"coordinators ended without a clean stop; others go on with their messages when their leases end",
		"coordinators", len(unreported), "last_coordinator", last.Instance,
		"last_seen", last.LastSeenAt.UTC().Format(time.RFC3339),
		"recent_ends", len(a.peers.Ends(endsLately, time.Now())), "remedy", endsRemedy)
	for _, end := range unreported {
		if end.InLoop {
			continue // another finding tells of the loop
		}
		a.peers.NoteOf(end.Instance, peers.Problem{
			Name: uncleanEnd, Severity: warning, Since: end.LastSeenAt, Until: end.LastSeenAt,
			What: "the coordinator ended without a clean stop", Why: endsWhy, Remedy: endsRemedy,
		})
	}
	a.events.Note(events.UncleanEnd, "",
		fmt.Sprintf("%d coordinators ended without a clean stop, the last was %s", len(unreported), last.Instance))
}

// leavePeers records a clean stop in Redis.
func (a *App) leavePeers(ctx context.Context, store *redisstore.Store) {
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	a.noteLife("coordinator-stopped", "stopped", time.Now())
	if err := a.peers.Leave(ctx, store); err != nil {
		a.logger.Warn("Redis does not answer; other coordinators will report an unclean end of this coordinator",
			"cause", err)
	}
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
	all := a.peers.Coordinators(now)
	restarts := peers.SurveyOf(all, now).Restarts
	stats := make([]*adminv1.Coordinator, len(all))
	for i, c := range all {
		stats[i] = &adminv1.Coordinator{
			Instance: c.Instance, Version: c.Version, State: coordinatorStates[c.State],
			GrpcAddress: c.GRPC, HttpAddress: c.HTTP, Place: c.Place, Restarts: int64(restarts[c.Place]),
			StartTime: server.Moment(c.StartedAt), LastSeenTime: server.Moment(c.SeenAt), ConfigHash: c.Config.Hash,
			Self: c.Instance == a.process.instance,
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
	answer := &adminv1.GetConfigurationResponse{Instance: a.process.instance, Version: a.process.version}
	if source := a.reloader.current(); source != nil {
		for _, v := range source.Effective() {
			answer.Values = append(answer.Values, &adminv1.ConfigurationValue{
				Key: v.Key, Value: v.Value, DefaultValue: v.Default, Origin: v.Origin, NeedsRestart: v.Restart,
			})
		}
	}
	return answer
}
