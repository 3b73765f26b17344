package bench

import (
	"fmt"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/dev/bench/compare"
	"github.com/msghandler/msghandler/test/servers"
)

// splitProducers is a number that one, two and three coordinators share evenly.
const splitProducers = 6

// BenchmarkSplit measures the loss of a load on this machine when the load is split among processes: the same six
// producers are served by one, two and three coordinators, and by as many bare references, which know nothing of each
// other and share only Redis and the broker. Any further loss of the coordinators is the cost of sharing the
// messages.
//
//	go test ./test/bench -run '^$' -bench Split -benchtime 1x -timeout 60m -args -rounds 5 -seconds 4
func BenchmarkSplit(b *testing.B) {
	for b.Loop() {
		s := newWorld(b, servers.PrivateRabbitMQ(b), buildCoordinator(b))
		for range most {
			s.startCoordinator(s.redis.URL(), s.rabbit.URL)
		}
		references := s.references(most)
		for _, mode := range modes {
			found := map[string][]bench.Report{}
			for round := range *rounds {
				for i := range most {
					n := 1 + (round+i)%most
					s.splitRound(mode, n, references, found)
				}
			}
			reportSplit(b, mode, found)
		}
	}
}

const referencesName, coordinatorsName = "bare references", "coordinators"

func splitKey(what string, n int) string { return fmt.Sprintf("%s %d", what, n) }

// references starts so many bare references.
func (s *setup) references(n int) (all []*compare.Reference) {
	executable := buildReference(s.b)
	for range n {
		r, err := compare.StartReference(s.b.Context(), executable, s.redis.URL(), s.rabbit.URL)
		s.must(err)
		s.b.Cleanup(func() {
			if err := r.Stop(); err != nil {
				s.b.Error(err)
			}
		})
		all = append(all, r)
	}
	return all
}

// splitRound measures n bare references and then n coordinators. The others stand still.
func (s *setup) splitRound(mode bench.Mode, n int, references []*compare.Reference, found map[string][]bench.Report) {
	load := s.load()
	load.Mode, load.Producers, load.Pinned, load.ConsumeAfter, load.RedisURL = mode, splitProducers, true, true, ""
	load.Coordinators, load.Processes[compare.Coordinator] = nil, nil
	for _, r := range references[:n] {
		load.Coordinators = append(load.Coordinators, r.Address)
		load.Processes[compare.Coordinator] = append(load.Processes[compare.Coordinator], r.PID)
	}
	s.keepSplit(splitKey(referencesName, n), s.measure(load), found)

	s.run(n)
	load.Coordinators, load.Processes = s.addresses(), s.processes()
	s.keepSplit(splitKey(coordinatorsName, n), s.measure(load), found)
}

func (s *setup) keepSplit(key string, report bench.Report, found map[string][]bench.Report) {
	found[key] = append(found[key], report)
	s.b.Logf("%s, %s: %.0f", report.Settings.Mode, key, report.Rate)
}

func reportSplit(b *testing.B, mode bench.Mode, found map[string][]bench.Report) {
	fmt.Printf("\n%s, %d producers, %d bytes each, medians of %d rounds that took turns\n\n", mode, splitProducers,
		*bodySize, *rounds)
	fmt.Printf("| | processes | messages/s | to one: median (all) | by CPU | CPU µs/message: %s |\n|%s\n",
		strings.Join(compare.Processes, ", "), strings.Repeat("---|", 6))
	for _, what := range []string{referencesName, coordinatorsName} {
		one := found[splitKey(what, 1)]
		for n := 1; n <= most; n++ {
			all := found[splitKey(what, n)]
			ratios := pairs(all, one, rateOf)
			fmt.Printf("| %s | %d | %.0f | %s | %.2f | %s |\n", what, n, compare.Median(all, rateOf), ratioText(ratios),
				median(pairs(one, all, spentOn)), costs(all))
			b.ReportMetric(median(ratios), fmt.Sprintf("%s-%s-%d-ratio", mode, strings.Fields(what)[0], n))
		}
	}
}
