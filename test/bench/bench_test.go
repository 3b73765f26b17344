// Package bench measures the whole coordinator next to what Redis and RabbitMQ themselves allow, in the same run.
//
//	make bench            # or: go test ./test/bench -run '^$' -bench . -benchtime 1x -args -messages 50000
//
// The rounds of the four measurements are interleaved and the medians are shown, so that a noisy machine is noisy for all
// of them; what counts are the ratios. Everything runs on the one machine: Redis, RabbitMQ, the coordinator, the producer.
package bench

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/servers"
)

var (
	messages = flag.Int("messages", 20000, "messages of each measurement")
	rounds   = flag.Int("rounds", 3, "rounds of which the median is shown")
	bodySize = flag.Int("body", 1024, "bytes of a body")
	callers  = flag.Int("callers", 256, "callers that send one message at a time")
	batch    = flag.Int("batch", 100, "messages of one call where calls are batched")
)

func TestMain(m *testing.M) { servers.Main(m) }

// figure is what one measurement found.
type figure struct {
	rate     float64 // messages a second
	p50, p99 time.Duration
	// cpu is microseconds of each process for each message.
	cpu map[string]float64
}

// measurement is one thing that is measured, over and over.
type measurement struct {
	name string
	run  func() (time.Duration, []time.Duration)
}

// BenchmarkEndToEnd measures SendHalfMessage + Submit until the broker's acknowledgement, and the ceilings beside it.
func BenchmarkEndToEnd(b *testing.B) {
	for b.Loop() {
		bench(b)
	}
}

func bench(b *testing.B) {
	s := newSetup(b)
	measurements := []measurement{
		{"Redis scripts alone", s.redisAlone},
		{"confirmed publishes alone", s.publishesAlone},
		{fmt.Sprintf("unary calls, %d callers", *callers), s.unary},
		{fmt.Sprintf("batch calls of %d, 8 callers", *batch), s.batches},
	}
	figures := make(map[string][]figure)
	for round := range *rounds {
		for _, m := range measurements {
			before := s.processTimes()
			took, latencies := m.run()
			after := s.processTimes()
			figures[m.name] = append(figures[m.name], newFigure(took, latencies, before, after))
			b.Logf("round %d: %-30s %8.0f messages/s", round+1, m.name, figures[m.name][round].rate)
		}
	}
	report(b, measurements, figures)
}

func newFigure(took time.Duration, latencies []time.Duration, before, after map[string]time.Duration) figure {
	slices.Sort(latencies)
	f := figure{rate: float64(*messages) / took.Seconds(), cpu: map[string]float64{}}
	if n := len(latencies); n > 0 {
		f.p50, f.p99 = latencies[n/2], latencies[n*99/100]
	}
	for name := range after {
		f.cpu[name] = float64((after[name] - before[name]).Microseconds()) / float64(*messages)
	}
	return f
}

func median(figures []figure, of func(figure) float64) float64 {
	values := make([]float64, len(figures))
	for i, f := range figures {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// report prints the table that docs/performance.md shows.
func report(b *testing.B, measurements []measurement, figures map[string][]figure) {
	var table strings.Builder
	fmt.Fprintf(&table, "\n%d messages of %d bytes, medians of %d interleaved rounds, %d CPUs\n\n",
		*messages, *bodySize, *rounds, runtime.NumCPU())
	fmt.Fprintf(&table, "| what | messages/s | of the publish ceiling | p50 | p99 | CPU us/message: %s |\n|---|---|---|---|---|---|\n",
		strings.Join(processNames, ", "))
	ceiling := median(figures["confirmed publishes alone"], func(f figure) float64 { return f.rate })
	for _, m := range measurements {
		all := figures[m.name]
		rate := median(all, func(f figure) float64 { return f.rate })
		fmt.Fprintf(&table, "| %s | %.0f | %.0f %% | %s | %s | %s |\n", m.name, rate, 100*rate/ceiling,
			latency(median(all, func(f figure) float64 { return float64(f.p50) })),
			latency(median(all, func(f figure) float64 { return float64(f.p99) })), cpus(all))
		b.ReportMetric(rate, strings.ReplaceAll(m.name, " ", "_")+"/s")
	}
	fmt.Println(table.String())
}

func latency(nanoseconds float64) string {
	if nanoseconds == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f ms", nanoseconds/1e6)
}

func cpus(all []figure) string {
	var parts []string
	for _, name := range processNames {
		parts = append(parts, fmt.Sprintf("%.0f", median(all, func(f figure) float64 { return f.cpu[name] })))
	}
	return strings.Join(parts, ", ")
}

// buildCoordinator builds the binary that is measured.
func buildCoordinator(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "msghandler")
	if out, err := exec.Command("go", "build", "-o", path, "../../cmd/msghandler").CombinedOutput(); err != nil {
		b.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// processTime is the CPU time that a process has used, its children left out.
func processTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	// The fields after the name, which is in parentheses and may hold blanks: utime is the 12th, stime the 13th.
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+2:]))
	var ticks [2]int64
	for i := range ticks {
		if _, err := fmt.Sscan(fields[11+i], &ticks[i]); err != nil {
			b.Fatal(err)
		}
	}
	const ticksPerSecond = 100 // USER_HZ on every Linux that Go runs on
	return time.Duration(ticks[0]+ticks[1]) * time.Second / ticksPerSecond
}
