package bench

import (
	"context"
	"flag"
	"fmt"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

var (
	waiting = flag.Int("waiting", 20_000, "messages that wait for each producer that is not well")
	offered = flag.Int("offered", 300, "messages a second that are new: of three healthy producers together, or beside a "+
		"drain; 0: as many as they can")
	phase = flag.Duration("phase", 10*time.Second, "how long each phase is measured")
)

// answering is a producer that takes its time.
type answering struct {
	committed
	takes time.Duration
}

func (a answering) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	timer := time.NewTimer(a.takes)
	defer timer.Stop()
	select {
	case <-timer.C:
		return a.committed.Confirm(ctx, r)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// BenchmarkSickProducers measures three healthy producers alone, and beside a dead, a hung and a slow producer for
// which 20,000 messages wait each. The phases take turns, each with a new coordinator and a new Redis.
//
//	go test ./test/bench -run '^$' -bench SickProducers -benchtime 1x -args -rounds 5 -offered 300
func BenchmarkSickProducers(b *testing.B) {
	for b.Loop() {
		healthy := map[bool][]figure{}
		for round := range *rounds {
			for _, sick := range []bool{false, true} {
				f := measurePhase(b, sick)
				healthy[sick] = append(healthy[sick], f)
				b.Logf("round %d, sick producers %t: %.0f messages/s, p50 %.1f ms, p99 %.1f ms", round+1, sick, f.rate, f.p50,
					f.p99)
			}
		}
		reportSick(b, healthy[false], healthy[true])
	}
}

func reportSick(b *testing.B, calm, sick []figure) {
	rate := func(f figure) float64 { return f.rate }
	p99 := func(f figure) float64 { return f.p99 }
	fmt.Printf("\nthree healthy producers, %d messages/s offered, medians of %d interleaved rounds of %v\n\n", *offered,
		*rounds,
		*phase)
	fmt.Printf("| | messages/s | p99 |\n|---|---|---|\n")
	fmt.Printf("| alone | %.0f | %s |\n", medianOf(calm, rate), milliseconds(medianOf(calm, p99)))
	fmt.Printf("| beside a dead, a hanging and a slow one | %.0f | %s |\n", medianOf(sick, rate),
		milliseconds(medianOf(sick, p99)))
	throughput, slower := medianOf(sick, rate)/medianOf(calm, rate),
		medianOf(sick, p99)/medianOf(calm, p99)
	fmt.Printf("| ratio | %.0f %% | %.2f |\n\n", 100*throughput, slower)
	b.ReportMetric(throughput, "throughput-ratio")
	b.ReportMetric(slower, "p99-ratio")
}

// measurePhase runs the healthy producers against a new world, with or without the sick ones.
func measurePhase(b *testing.B, sick bool) (f figure) {
	b.Run("phase", func(b *testing.B) {
		s := newSetup(b)
		s.healthy(time.Second) // connections, caches
		if sick {
			s.fall()
		}
		f = s.healthy(*phase)
	})
	return f
}

// healthy has three producers send and submit together so many messages a second, or at full speed with 24 callers
// without a rate. A message's time runs from its due moment until the broker's acknowledgement.
func (s *setup) healthy(long time.Duration) figure {
	load := s.load()
	load.Mode, load.Producers, load.Rate, load.Callers = bench.Unary, 3, *offered, 24
	load.Warmup, load.Duration = time.Millisecond, long
	report := s.measure(load)
	return figure{rate: report.Rate, p50: report.HalfToAck.P50, p99: report.HalfToAck.P99}
}

// fall lets messages wait for a producer without a listener, for a producer that never answers, and for a producer
// that needs two seconds of its three.
func (s *setup) fall() {
	targets := map[string]string{
		"dead": s.deadTarget(), "hanging": s.serve(answering{takes: time.Hour}),
		"slow": s.serve(answering{takes: 2 * time.Second}),
	}
	for producer, target := range targets {
		s.store(producer, target, *waiting, atOnce)
	}
}

// atOnce is the due time of messages whose Confirm call follows at once.
func atOnce() time.Duration { return time.Millisecond }
