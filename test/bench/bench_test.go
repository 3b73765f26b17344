// Package bench measures the whole coordinator next to the bare chain, which does only the bare work, in the same run.
//
//	make bench            # or: go test ./test/bench -run '^$' -bench EndToEnd -benchtime 1x -args -rounds 5 -seconds 4
//
// The load is that of msghandler-bench (dev/bench). Everything runs on the one machine: Redis, RabbitMQ, the
// coordinators, the producer.
package bench

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/test/servers"
)

var (
	rounds       = flag.Int("rounds", 3, "rounds of which the median is shown")
	seconds      = flag.Float64("seconds", 3, "how long each measurement of a round lasts")
	bodySize     = flag.Int("body", 1024, "bytes of a body")
	coordinators = flag.Int("coordinators", 1, "how many coordinators share the load")
	callers      = flag.Int("callers", 0, "messages under way at once in a closed loop; 0: 256 with unary calls and "+
		"2,000 gathered")
	others = flag.String("others", "", "binaries of msghandler, separated by commas, that BenchmarkEndToEnd measures "+
		"beside the one of this checkout")
	profiles = flag.String("profiles", "", "a directory for profiles of the coordinator under BenchmarkFull")
)

func TestMain(m *testing.M) {
	if os.Getenv(bareRedis) == "" {
		servers.Main(m)
	}
	if err := serveReference(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// contender is one of the systems that BenchmarkEndToEnd measures in turn.
type contender struct {
	name string
	load func() bench.Config
}

// BenchmarkEndToEnd measures SendHalfMessage and Submit until the broker's acknowledgement: the coordinator of this
// checkout, in turn with those of -others and with the bare chain, on the same broker. Each coordinator has a Redis of
// its own, and the bare chain shares the first.
func BenchmarkEndToEnd(b *testing.B) {
	for b.Loop() {
		rabbit := servers.PrivateRabbitMQ(b)
		var all []contender
		var first *setup
		for _, binary := range append([]string{buildCoordinator(b)}, otherBinaries()...) {
			s := newWorld(b, rabbit, binary)
			for range *coordinators {
				s.startCoordinator(s.redis.URL(), s.rabbit.URL)
			}
			all = append(all, contender{binary, s.load})
			if first == nil {
				first, all[0].name = s, "this checkout"
			}
		}
		bareChain := first.startReference()
		all = append(all, contender{"bare chain", func() bench.Config { return bareChain.under(first.load()) }})
		for _, mode := range modes {
			found := make([][]bench.Report, len(all))
			for range *rounds {
				for i, c := range all {
					load := c.load()
					load.Mode, load.ConsumeAfter = mode, true
					found[i] = append(found[i], first.measure(load))
				}
			}
			reportEndToEnd(b, mode, all, found)
		}
	}
}

func otherBinaries() []string {
	return strings.FieldsFunc(*others, func(r rune) bool { return r == ',' })
}

func reportEndToEnd(b *testing.B, mode bench.Mode, all []contender, found [][]bench.Report) {
	b.Helper()
	fmt.Printf("\n%s, %d bytes each, %d CPUs, %d coordinators, medians of %d rounds that took turns\n\n", mode, *bodySize,
		runtime.NumCPU(), *coordinators, *rounds)
	fmt.Printf("| what | messages/s | this checkout to it: rate, CPU time | p50, p99 | CPU µs/message: %s |\n|%s\n",
		strings.Join(bench.Processes, ", "), strings.Repeat("---|", 5))
	for i, reports := range found {
		ratio := median(pairs(found[0], reports, rateOf))
		fmt.Printf("| %s | %.0f | %.2f, %.2f | %s, %s | %s |\n", all[i].name, medianOf(reports, rateOf), ratio,
			median(pairs(found[0], reports, spentOn)), milliseconds(medianOf(reports, submitP50)),
			milliseconds(medianOf(reports, submitP99)), costs(reports))
		b.ReportMetric(ratio, strings.ReplaceAll(fmt.Sprintf("%s-to-%s", mode, filepath.Base(all[i].name)), " ", "-"))
	}
}

// load is the load generator's configuration for the setup.
func (s *setup) load() bench.Config {
	return bench.Config{
		Coordinators: s.addresses(), AMQPURL: s.rabbit.URL, Body: *bodySize, Callers: *callers,
		Warmup: time.Second, Duration: time.Duration(*seconds * float64(time.Second)), Processes: s.processes(),
	}
}

func markdown(table [][]string) string {
	var b strings.Builder
	for i, row := range table {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			b.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return b.String()
}

// buildCoordinator builds the measured binary, with profiles where they are wanted.
func buildCoordinator(b *testing.B) string {
	b.Helper()
	program := "../../cmd/msghandler"
	if *profiles != "" {
		program = "./profiled"
	}
	path := filepath.Join(b.TempDir(), "msghandler")
	if out, err := exec.Command("go", "build", "-o", path, program).CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	return path
}
