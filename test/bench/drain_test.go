package bench

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/test/servers"
)

var drains = flag.String("drains", "10000,100000,1000000", "how many messages BenchmarkDrain has drained, one size "+
	"after the other")

// large is a backlog that is drained once, in the first round: its storing takes minutes.
const large = 500_000

// BenchmarkDrain has one coordinator drain pending and due messages: the coordinator claims, asks, publishes and
// stores the outcome until nothing is left. Each backlog has a new Redis of its own.
//
//	go test ./test/bench -run '^$' -bench 'Drain$' -benchtime 1x -timeout 60m -args -rounds 5
func BenchmarkDrain(b *testing.B) {
	for b.Loop() {
		anew, sizes, found := worlds(b), drainSizes(b), map[int][]drained{}
		for round := range *rounds {
			for _, n := range sizes {
				if n >= large && round > 0 {
					continue
				}
				anew(strconv.Itoa(n), func(s *setup) {
					f := drained{shared: s.drain(s.openQueue(), n), claim: s.all[0].scrape().times("msghandler_script_seconds",
						"claim")}
					found[n] = append(found[n], f)
					b.Logf("round %d: %d, %.0f/s in %.1f s, CPU %v", round+1, n, f.Rate, f.Seconds, f.CPU)
				})
			}
		}
		reportDrains(b, sizes, found)
	}
}

// drained is the result of a backlog, with the duration of the claiming script.
type drained struct {
	shared
	claim figure
}

// worlds makes new worlds, each with one coordinator, beside the same broker.
func worlds(b *testing.B) (anew func(name string, measure func(*setup))) {
	rabbit, binary := servers.PrivateRabbitMQ(b), buildCoordinator(b)
	return func(name string, measure func(*setup)) {
		b.Run(name, func(b *testing.B) {
			s := newWorld(b, rabbit, binary)
			s.startCoordinator(s.redis.URL(), rabbit.URL, sharding()...)
			measure(s)
		})
	}
}

func drainSizes(b *testing.B) (sizes []int) {
	for text := range strings.SplitSeq(*drains, ",") {
		n, err := strconv.Atoi(text)
		if err != nil {
			b.Fatal(err)
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// reportDrains reports how larger backlogs compare with the first.
func reportDrains(b *testing.B, sizes []int, found map[int][]drained) {
	fmt.Printf("\nbacklogs drained by one coordinator, %d bytes each, medians of the rounds; claims of all rounds "+
		"together\n\n", *bodySize)
	fmt.Printf("| waiting | rounds | messages/s | to %d | CPU µs/message: %s | all of them to %d | a claim call p50, p99 "+
		"| %s |\n|%s\n",
		sizes[0], strings.Join(bench.Processes, ", "), sizes[0], claimColumns, strings.Repeat("---|", 14))
	rate := func(f drained) float64 { return f.Rate }
	spent := func(f drained) float64 { return spentOn(f.Report) }
	for _, n := range sizes {
		to := func(is func(drained) float64) float64 {
			return medianOf(found[n], is) / medianOf(found[sizes[0]], is)
		}
		var all []shared
		for _, f := range found[n] {
			all = append(all, f.shared)
		}
		fmt.Printf("| %d | %d | %.0f | %.2f | %s | %.2f | %s, %s | %s |\n", n, len(all), medianOf(found[n], rate),
			to(rate),
			costs(reports(all)), to(spent), milliseconds(medianOf(found[n],
				func(f drained) float64 { return f.claim.p50 })),
			milliseconds(medianOf(found[n], func(f drained) float64 { return f.claim.p99 })), claimsOf(all))
		b.ReportMetric(to(rate), fmt.Sprintf("%d-ratio", n))
	}
}

// BenchmarkDrainBeside has one coordinator drain a backlog while new messages come at a rate, one a call, next to
// each without the other. Each has a new Redis of its own, and they take turns. New messages are offered alone for as
// long as they were beside the drain.
//
//	go test ./test/bench -run '^$' -bench DrainBeside -benchtime 1x -timeout 60m \
//	  -args -rounds 3 -backlog 100000 -offered 300
func BenchmarkDrainBeside(b *testing.B) {
	for b.Loop() {
		anew := worlds(b)
		var alone, drains, beside, calm []bench.Report
		for round := range *rounds {
			var drain, both, fresh, quiet bench.Report
			anew("drain", func(s *setup) { drain = s.drain(s.openQueue(), *backlog).Report })
			anew("both", func(s *setup) { both, fresh = s.drainBeside() })
			long := time.Duration(both.Seconds * float64(time.Second))
			anew("new", func(s *setup) { quiet = s.measure(s.fresh(settled, long)) })
			if b.Failed() {
				return
			}
			alone, drains, beside, calm = append(alone, drain), append(drains, both), append(beside, fresh), append(calm, quiet)
			b.Logf("round %d: %.0f/s drained alone, %.0f/s beside new ones, whose p99 is %.1f ms, and %.1f ms without", round+1,
				drain.Rate, both.Rate, submitP99(fresh), submitP99(quiet))
		}
		reportDrainBeside(b, alone, drains, beside, calm)
	}
}

// fresh are new messages at a rate.
func (s *setup) fresh(warmup, long time.Duration) bench.Config {
	load := s.load()
	load.Mode, load.Rate, load.ConsumeAfter = bench.Unary, *offered, true
	load.Warmup, load.Duration = warmup, long
	return load
}

// drainBeside drains a backlog while new messages come. The new messages are measured from the due time of the
// backlog until its end.
func (s *setup) drainBeside() (drain, fresh bench.Report) {
	q := s.openQueue()
	due := s.pileUp(*backlog)
	ctx, end := context.WithCancel(context.Background())
	var err error
	var offering sync.WaitGroup
	defer offering.Wait()
	defer end()
	offering.Go(func() { fresh, err = bench.Run(ctx, s.fresh(time.Until(due), time.Hour)) })
	drain = s.drained(q, *backlog).Report
	end()
	offering.Wait()
	s.judge(fresh, err)
	return drain, fresh
}

// reportDrainBeside reports how a drain and new messages fare beside each other.
func reportDrainBeside(b *testing.B, alone, drains, beside, calm []bench.Report) {
	fmt.Printf("\n%d due at once, and %d new messages/s, one a call; %d bytes each, medians of %d rounds that took "+
		"turns\n\n", *backlog,
		*offered, *bodySize, *rounds)
	fmt.Print("| | drained/s | new messages/s | Submit to ack p50, p99 | half message to ack p50, p99 " +
		"|\n|---|---|---|---|---|\n")
	of := func(reports []bench.Report, is func(bench.Report) float64) string {
		return milliseconds(medianOf(reports, is))
	}
	for _, row := range []struct {
		name         string
		drain, fresh []bench.Report
	}{{"the drain alone", alone, nil}, {"the new ones alone", nil, calm}, {"both", drains, beside}} {
		drained, rate, submit, half := "", "", "", ""
		if row.drain != nil {
			drained = fmt.Sprintf("%.0f", medianOf(row.drain, rateOf))
		}
		if row.fresh != nil {
			rate = fmt.Sprintf("%.0f", medianOf(row.fresh, rateOf))
			submit = of(row.fresh, submitP50) + ", " + of(row.fresh, submitP99)
			half = of(row.fresh, halfP50) + ", " + of(row.fresh, halfP99)
		}
		fmt.Printf("| %s | %s | %s | %s | %s |\n", row.name, drained, rate, submit, half)
	}
	fmt.Printf("| both to alone: median (all) | %s | %s | p99 %s | p99 %s |\n", ratioText(pairs(drains, alone, rateOf)),
		ratioText(pairs(beside, calm, rateOf)), ratioText(pairs(beside, calm, submitP99)),
		ratioText(pairs(beside, calm, halfP99)))
	b.ReportMetric(median(pairs(drains, alone, rateOf)), "drain-ratio")
	b.ReportMetric(median(pairs(beside, calm, submitP99)), "p99-ratio")
}

func submitP50(r bench.Report) float64 { return r.SubmitToAck.P50 }
func halfP50(r bench.Report) float64   { return r.HalfToAck.P50 }
