package bench

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

var (
	dead = flag.Int("dead", 1_000_000, "messages that wait for the dead producer of BenchmarkDead")
	idle = flag.Duration("idle", 20*time.Second, "how long BenchmarkDead measures the costs without senders")

	rewrites = flag.Bool("rewrites", false, "let Redis write its append-only file anew while BenchmarkDead measures, as "+
		"often as it does")
)

// settled is how long a load runs before the measurement where coordinators have just been started.
const settled = 3 * time.Second

// BenchmarkDead measures a producer's full throughput while a million messages of a dead producer wait: all of them
// are due, and the dead producer is tried again and again. Rounds with and without these messages take turns. Each
// has a Redis and a coordinator of its own, and only the measured coordinator runs. A round begins without senders:
// this time shows the cost of the dead producer alone, just after a start, when the tries are most frequent. All
// waiting messages are also swept every ten seconds, so idle and seconds are best whole tens.
//
// Redis rewrites its append-only file whenever the file has doubled, with a million messages for seconds of a whole
// CPU. The moment depends on earlier traffic, so the rewrite is measured by itself, with -rewrites.
//
//	go test ./test/bench -run '^$' -bench Dead -benchtime 1x -timeout 60m -args -rounds 7 -seconds 10
func BenchmarkDead(b *testing.B) {
	for b.Loop() {
		alone := newSetup(b)
		alone.run(0)
		beside := alone.another()
		beside.die(*dead)
		worlds := map[bool]*setup{false: alone, true: beside}
		for _, world := range worlds {
			world.warmUp()
		}
		turns := map[bool][]turn{}
		for round := range *rounds {
			for _, with := range []bool{round%2 != 0, round%2 == 0} {
				t := worlds[with].turn()
				if with && t.tried == 0 {
					b.Error("the dead producer was never called")
				}
				turns[with] = append(turns[with], t)
				b.Logf("round %d, a dead producer %t: %s", round+1, with, t)
			}
		}
		reportDead(b, turns[false], turns[true])
	}
}

// another is a setup with a Redis and coordinators of its own, which do not run, beside the same broker.
func (s *setup) another() *setup {
	other := newWorld(s.b, s.rabbit, s.binary)
	for range s.all {
		other.startCoordinator(other.redis.URL(), s.rabbit.URL)
	}
	other.run(0)
	return other
}

// die has a producer store messages that are due at once, without a producer that answers for them.
func (s *setup) die(n int) {
	s.run(len(s.all))
	defer s.run(0)
	begun := time.Now()
	s.store("dead", s.deadTarget(), n, atOnce)
	s.b.Logf("%d messages of the dead producer were stored in %.0f s", n, time.Since(begun).Seconds())
	if waiting := s.unfinished(); waiting != int64(n) {
		s.b.Fatalf("%d messages wait, not %d", waiting, n)
	}
	s.indexed("dead")
	s.written()
}

// indexed waits until all messages of a producer are in the indexes, as those of a backlog are.
func (s *setup) indexed(producer string) {
	begun := time.Now()
	used := s.used(func() {
		servers.Eventually(s.b, 10*time.Minute, "all messages are in the indexes", func() bool {
			return strings.TrimSpace(s.redis.CLI("HLEN", "msghandler:{00}:"+producer+":pending:cells")) == "0"
		})
	})
	s.b.Logf("all of them were in the indexes after %.0f s more, of which Redis took %v",
		time.Since(begun).Seconds(), used[bench.Redis])
}

// written waits until Redis has rewritten its file, if it does, so that no measurement contains the rewrite.
func (s *setup) written() {
	servers.Eventually(s.b, 5*time.Minute, "Redis has written its file anew", func() bool {
		return strings.Contains(s.redis.CLI("INFO", "persistence"), "aof_rewrite_in_progress:0")
	})
}

// unfinished is how many messages are pending or to be published.
func (s *setup) unfinished() (n int64) {
	stats, err := s.admin.GetStats(context.Background(), &adminv1.GetStatsRequest{})
	if err != nil {
		s.b.Error(err)
	}
	for _, state := range stats.GetStates() {
		if state.GetState() == pb.State_STATE_PENDING || state.GetState() == pb.State_STATE_SENDABLE {
			n += state.GetCount()
		}
	}
	return n
}

// modes are the measured modes, in this order.
var modes = []bench.Mode{bench.Gathered, bench.Unary}

// turn is the result of one world in one round.
type turn struct {
	loads map[bench.Mode]bench.Report
	// idle is the processor time of a second without senders.
	idle map[string]time.Duration
	// tried is how many messages were put off because their producer is dead, swept how many were compared with their
	// indexes: waiting messages are swept as well.
	tried, swept float64
}

// String is for the log.
func (t turn) String() string {
	text := fmt.Sprintf("idle %v a second, %.0f messages put off, %.0f swept", t.idle, t.tried, t.swept)
	for _, mode := range modes {
		text += fmt.Sprintf(", %s %.0f/s", mode, t.loads[mode].Rate)
	}
	return text
}

// warmUp has a turn that does not count. After Redis has stored a large backlog and written it to a file from a fork,
// the next write to each page copies the page.
func (s *setup) warmUp() {
	if !*rewrites {
		s.redis.CLI("CONFIG", "SET", "auto-aof-rewrite-percentage", "0")
	}
	s.turn()
}

// turn starts the coordinators, measures them idle and under load, and stops them.
func (s *setup) turn() turn {
	s.run(len(s.all))
	defer s.run(0)
	t := turn{loads: map[bench.Mode]bench.Report{}, idle: s.used(func() { <-time.After(*idle) })}
	for name, used := range t.idle {
		t.idle[name] = time.Duration(float64(used) / idle.Seconds()).Round(10 * time.Microsecond)
	}
	for _, mode := range modes {
		load := s.load()
		load.Mode, load.Warmup = mode, settled
		t.loads[mode] = s.measure(load)
	}
	t.tried = s.total(counted, "msghandler_moves_total", "unreachable", "stored")
	t.swept = s.total(counted, "msghandler_sweep_messages_total")
	return t
}

// reportDead compares the rounds with a dead producer and the rounds without.
func reportDead(b *testing.B, alone, beside []turn) {
	fmt.Printf("\n%d messages of a dead producer, %d bytes each, medians of %d rounds of %.0f s that took turns\n",
		*dead, *bodySize, *rounds, *seconds)
	for _, mode := range modes {
		without, with := loads(alone, mode), loads(beside, mode)
		fmt.Printf("\n| %s | messages/s | Submit to ack p99 | half to ack p99 | CPU µs/message: %s "+
			"|\n|---|---|---|---|---|\n", mode,
			strings.Join(bench.Processes, ", "))
		reportLoad("nothing waits", without)
		reportLoad(fmt.Sprintf("%d wait", *dead), with)
		fmt.Printf("| ratio of pairs: median (all) | %s | %s | %s | %s |\n", ratioText(pairs(with, without, rateOf)),
			ratioText(pairs(with, without, submitP99)), ratioText(pairs(with, without, halfP99)),
			ratioText(pairs(with, without, spentOn)))
		b.ReportMetric(median(pairs(with, without, rateOf)), string(mode)+"-ratio")
	}
	fmt.Printf("\n| without senders, CPU ms/s | coordinator | Redis | messages put off in a round | messages swept " +
		"in a round |\n|---|---|---|---|---|\n")
	reportIdle("nothing waits", alone)
	reportIdle(fmt.Sprintf("%d wait", *dead), beside)
}

func loads(turns []turn, mode bench.Mode) (reports []bench.Report) {
	for _, t := range turns {
		reports = append(reports, t.loads[mode])
	}
	return reports
}

// used is the CPU time of each process while something happens.
func (s *setup) used(do func()) map[string]time.Duration {
	before := s.processes().Sample()
	do()
	used := map[string]time.Duration{}
	for name, after := range s.processes().Sample() {
		used[name] = after.CPU - before[name].CPU
	}
	return used
}

func submitP99(r bench.Report) float64 { return r.SubmitToAck.P99 }
func halfP99(r bench.Report) float64   { return r.HalfToAck.P99 }

func reportLoad(name string, reports []bench.Report) {
	fmt.Printf("| %s | %.0f | %s | %s | %s |\n", name, medianOf(reports, rateOf),
		milliseconds(medianOf(reports, submitP99)), milliseconds(medianOf(reports, halfP99)), costs(reports))
}

func reportIdle(name string, turns []turn) {
	spent := func(process string) float64 {
		return medianOf(turns, func(t turn) float64 { return 1000 * t.idle[process].Seconds() })
	}
	fmt.Printf("| %s | %.1f | %.1f | %.0f | %.0f |\n", name, spent(bench.Coordinator), spent(bench.Redis),
		medianOf(turns, func(t turn) float64 { return t.tried }),
		medianOf(turns, func(t turn) float64 { return t.swept }))
}
