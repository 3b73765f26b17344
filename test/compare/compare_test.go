// Package compare measures msghandler beside other ways of the Go ecosystem to send a message with a committed order,
// on the same servers, in one interleaved run.
//
//	make compare          # or one part: go test -run '^$' -bench Speed -benchtime 1x -timeout 90m -v -args -rounds 5
//
// The systems, with their settings, are in package systems. docs/evidence/comparison.md has the results.
package compare

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/compare/load"
	"github.com/msghandler/msghandler/test/compare/systems"
	"github.com/msghandler/msghandler/test/servers"
)

var (
	rounds  = flag.Int("rounds", 5, "rounds, of which the medians are shown")
	seconds = flag.Float64("seconds", 4, "how long each measurement of a round lasts")
	warmup  = flag.Float64("warmup", 2, "how long each load runs before its measurement")
	callers = flag.Int("callers", 512, "orders under way at once in the closed loop")
	offered = flag.Int("offered", 0, "orders a second at the fixed rate; 0: half of the slowest system's throughput")
	body    = flag.Int("body", 1024, "bytes of a body")
	fsync   = flag.String("appendfsync", "always", "when Redis syncs its file: always, as PostgreSQL and RabbitMQ do, "+
		"or everysec")
	only = flag.String("only", "", "names of systems, with commas between; empty: all")
)

func TestMain(m *testing.M) { servers.Main(m) }

// BenchmarkSpeed measures the throughput, the costs and the times of each system.
func BenchmarkSpeed(b *testing.B) {
	for b.Loop() {
		w := newWorld(b)
		kinds := w.chosen()
		full := w.rounds(kinds, 0)
		rate := *offered
		if rate == 0 {
			rate = halfOfSlowest(full)
		}
		steady := w.rounds(kinds, rate)
		fmt.Printf("\n%d rounds of %.0f s, %d callers, %d bytes, %d CPUs, appendfsync %s\n\n%s\n\n%s\n",
			*rounds, *seconds, *callers, *body, runtime.NumCPU(), *fsync, saturation(kinds, full),
			steadiness(kinds, steady, rate))
	}
}

// chosen are the systems to measure.
func (w *world) chosen() (kinds []systems.Kind) {
	for _, kind := range systems.All {
		if *only == "" || slices.Contains(strings.Split(*only, ","), kind.Name) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// figures are the results of the rounds by the name of the system.
type figures map[string][]figure

// rounds measures the systems in turn, at a rate, or as much as they can with rate 0. Every second round goes
// backwards, so that no system always comes after the same other.
func (w *world) rounds(kinds []systems.Kind, rate int) figures {
	all := figures{}
	turn := slices.Clone(kinds)
	for round := range *rounds {
		for _, kind := range turn {
			f := w.measure(kind, rate)
			all[kind.Name] = append(all[kind.Name], f)
			w.t.Logf("round %d, rate %d, %s: %s", round+1, rate, kind.Name, f)
		}
		slices.Reverse(turn)
	}
	return all
}

// measure puts the load on one system.
func (w *world) measure(kind systems.Kind, rate int) figure {
	stop := w.startCoordinator(kind)
	defer stop()
	config := w.load(kind)
	config.Warmup, config.Duration, config.Settle = asSeconds(*warmup), asSeconds(*seconds), time.Minute
	if config.Callers = *callers; rate > 0 {
		config.Callers, config.Rate = 0, rate
	}
	s := w.startService(config)
	s.await(load.StageBegin)
	before := w.sample(s)
	s.await(load.StageEnd)
	after := w.sample(s)
	report := s.result()
	if report.Failed > 0 || report.Missing > 0 {
		w.t.Errorf("%s: %d orders failed, the first with %q, and %d messages did not arrive", kind.Name, report.Failed,
			report.FirstError, report.Missing)
	}
	w.tidy()
	return newFigure(report, before, after)
}

func asSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// halfOfSlowest is the fixed rate at which the times are compared.
func halfOfSlowest(full figures) int {
	slowest := 0.0
	for _, all := range full {
		if rate := median(all, func(f figure) float64 { return f.report.Rate }); slowest == 0 || rate < slowest {
			slowest = rate
		}
	}
	return max(1, int(slowest/2))
}
