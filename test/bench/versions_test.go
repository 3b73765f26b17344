package bench

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/dev/bench/compare"
	"github.com/msghandler/msghandler/test/servers"
)

var others = flag.String("others", "", "binaries of msghandler, separated by commas, that BenchmarkVersions measures "+
	"beside the one of this checkout")

// BenchmarkVersions measures versions of the coordinator in turn, on the same broker, each with a Redis of its own.
// -coordinators says how many coordinators of each version share the load.
//
//	go test ./test/bench -run '^$' -bench Versions -benchtime 1x -args -rounds 9 -seconds 2 -others /tmp/before
func BenchmarkVersions(b *testing.B) {
	for b.Loop() {
		rabbit := servers.PrivateRabbitMQ(b)
		var worlds []*setup
		for _, binary := range versions(b) {
			s := newWorld(b, rabbit, binary)
			for range *coordinators {
				s.startCoordinator(s.redis.URL(), s.rabbit.URL)
			}
			worlds = append(worlds, s)
		}
		for _, mode := range modes {
			found := make([][]bench.Report, len(worlds))
			for range *rounds {
				for i, s := range worlds {
					load := s.load()
					load.Mode, load.ConsumeAfter = mode, true
					found[i] = append(found[i], s.measure(load))
				}
			}
			reportVersions(mode, worlds, found)
		}
	}
}

// versions are the measured binaries, that of this checkout first.
func versions(b *testing.B) []string {
	all := []string{buildCoordinator(b)}
	if *others != "" {
		all = append(all, strings.Split(*others, ",")...)
	}
	return all
}

func reportVersions(mode bench.Mode, worlds []*setup, found [][]bench.Report) {
	fmt.Printf("\n%s, %d bytes each, %d coordinators, medians of %d rounds that took turns\n\n", mode, *bodySize,
		*coordinators, *rounds)
	fmt.Printf("| version | messages/s | to the first: rate, CPU time | p50, p99 | CPU µs/message: %s |\n|%s\n",
		strings.Join(compare.Processes, ", "), strings.Repeat("---|", 5))
	for i, all := range found {
		fmt.Printf("| %s | %.0f | %.2f, %.2f | %s, %s | %s |\n", worlds[i].binary, compare.Median(all, rateOf),
			median(pairs(all, found[0], rateOf)), median(pairs(all, found[0], spentOn)),
			milliseconds(compare.Median(all, func(r bench.Report) float64 { return r.SubmitToAck.P50 })),
			milliseconds(compare.Median(all, func(r bench.Report) float64 { return r.SubmitToAck.P99 })), costs(all))
	}
}
