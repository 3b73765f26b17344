// Package bench measures the whole coordinator next to the ceilings of Redis, RabbitMQ and gRPC, in the same run.
//
//	make bench            # or: go test ./test/bench -run '^$' -bench EndToEnd -benchtime 1x -args -rounds 5 -seconds 4
//
// The load, the bare references and the comparison belong to msghandler-bench --ceilings (dev/bench). Everything
// runs on the one machine: Redis, RabbitMQ, the coordinators, the producer.
package bench

import (
	"context"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/dev/bench/compare"
	"github.com/msghandler/msghandler/test/servers"
)

var (
	rounds       = flag.Int("rounds", 3, "rounds of which the median is shown")
	seconds      = flag.Float64("seconds", 3, "how long each measurement of a round lasts")
	bodySize     = flag.Int("body", 1024, "bytes of a body")
	coordinators = flag.Int("coordinators", 1, "how many coordinators share the load")
	callers      = flag.Int("callers", 0, "messages under way at once in a closed loop; 0: 256 with unary calls and "+
		"2,000 gathered")
	rate     = flag.Int("rate", 4000, "messages a second that BenchmarkOffered offers")
	profiles = flag.String("profiles", "", "a directory for profiles of the coordinator under BenchmarkOffered or "+
		"BenchmarkFull")
)

func TestMain(m *testing.M) { servers.Main(m) }

// BenchmarkEndToEnd measures SendHalfMessage + Submit until the broker's acknowledgement, and the ceilings beside it.
func BenchmarkEndToEnd(b *testing.B) {
	for b.Loop() {
		s := newSetup(b)
		rows, err := compare.Run(context.Background(), compare.Config{
			Load: s.load(), Executable: buildReference(b), Rounds: *rounds,
			Progress: func(what string, round int) { b.Logf("round %d: %s", round, what) },
		})
		s.must(err)
		fmt.Printf("\n%d bytes, medians of %d interleaved rounds of %.0f s, %d CPUs, %d coordinators\n\n%s\n", *bodySize,
			*rounds,
			*seconds, runtime.NumCPU(), *coordinators, markdown(compare.Table(rows)))
		for _, row := range rows {
			b.ReportMetric(row.Rate, strings.NewReplacer(" ", "_", ",", "").Replace(row.Name)+"/s")
		}
	}
}

// load is the load generator's configuration for the setup.
func (s *setup) load() bench.Config {
	return bench.Config{
		Coordinators: s.addresses(), AMQPURL: s.rabbit.URL, RedisURL: s.redis.URL(), Body: *bodySize, Callers: *callers,
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
	return buildProgram(b, "msghandler", program)
}

// buildReference builds msghandler-bench, which runs as the bare reference.
func buildReference(b *testing.B) string {
	b.Helper()
	return buildProgram(b, "msghandler-bench", "../../cmd/msghandler-bench")
}

func buildProgram(b *testing.B, name, program string) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), name)
	if out, err := exec.Command("go", "build", "-o", path, program).CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	return path
}
