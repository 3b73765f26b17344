package bench

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/test/servers"
)

var (
	silent  = flag.Float64("silent", 0.1, "share of BenchmarkScale's new messages that commit and say nothing")
	backlog = flag.Int("backlog", 60_000, "messages that BenchmarkScale and BenchmarkDrainBeside have coordinators drain")
)

const (
	// most is how many coordinators BenchmarkScale starts.
	most = 3
	// askedAfter is when they ask about silent messages: the default of confirm.after.
	askedAfter = 6 * time.Second
)

// BenchmarkScale measures one, two and three coordinators on the same Redis and broker: with new messages, of which
// the confirm loops must claim the silent ones, and with a backlog, all of which they must claim. The benchmark
// reports looks and claims without a result. The rounds take turns, and so does the first task of a round. With
// -shards 16 claims go over several shards, as on a Cluster.
//
//	go test ./test/bench -run '^$' -bench Scale -benchtime 1x -timeout 60m -args -rounds 5 -seconds 6
func BenchmarkScale(b *testing.B) {
	for b.Loop() {
		s := newWorld(b, servers.PrivateRabbitMQ(b), buildCoordinator(b))
		for range most {
			s.startCoordinator(s.redis.URL(), s.rabbit.URL, sharding()...)
		}
		for _, t := range s.tasks() {
			reportScale(b, t, s.inTurn(t))
		}
	}
}

// sharding is the coordinators' configuration of shards.
func sharding() []string { return []string{"MSGHANDLER_REDIS_SHARDS=" + strconv.Itoa(*shards)} }

// task is what coordinators are measured with.
type task struct {
	name, title string
	measure     func() shared
}

func (s *setup) tasks() (all []task) {
	for _, mode := range modes {
		title := fmt.Sprintf("new messages, %s, %.0f %% of them silent", mode, 100**silent)
		all = append(all, task{string(mode), title, func() shared { return s.traffic(mode) }})
	}
	q := s.openQueue()
	return append(all, task{
		"backlog", fmt.Sprintf("a backlog of %d", *backlog),
		func() shared { return s.drain(q, *backlog) },
	})
}

// shared is the result of coordinators that share the work.
type shared struct {
	bench.Report
	claims claims
	// silent counts the messages that had to be claimed because they were not submitted.
	silent int64
	// left is how many messages were unfinished at the end. Callers do not wait for the silent ones.
	left int64
}

// claims are the coordinators' costs of finding and claiming messages: the looks for due messages, the calls of the
// claiming script and the successful calls, the claimed messages, and the outcomes that were refused because a
// message had another owner by then.
type claims struct{ looks, calls, fruitful, messages, lost float64 }

func (s *setup) claims() claims {
	return claims{
		looks:    s.total(observed, "msghandler_script_seconds", "due"),
		calls:    s.total(observed, "msghandler_script_seconds", "claim"),
		fruitful: s.total(observed, "msghandler_batch_messages", "claim"),
		messages: s.total(summed, "msghandler_batch_messages", "claim"),
		lost:     s.total(counted, "msghandler_moves_total", "lease_lost"),
	}
}

// plus adds claims so many times.
func (c claims) plus(more claims, times float64) claims {
	return claims{
		c.looks + times*more.looks, c.calls + times*more.calls, c.fruitful + times*more.fruitful,
		c.messages + times*more.messages, c.lost + times*more.lost,
	}
}

func (c claims) since(then claims) claims { return c.plus(then, -1) }

// inTurn measures with one coordinator up to the most, round by round.
func (s *setup) inTurn(t task) map[int][]shared {
	found := map[int][]shared{}
	for round := range *rounds {
		for i := range most {
			n := 1 + (round+i)%most
			s.run(n)
			f := t.measure()
			if f.claims.messages < float64(f.silent) {
				s.b.Errorf("%.0f messages were claimed, and %d were silent", f.claims.messages, f.silent)
			}
			found[n] = append(found[n], f)
			s.b.Logf("%s, round %d: %d | %.0f | %s", t.name, round+1, n, f.Rate, claimsOf([]shared{f}))
		}
	}
	return found
}

// traffic puts a full load on the coordinators. The measurement begins when they are asking about silent messages.
// Claims are counted from the beginning of the load until all messages have arrived.
func (s *setup) traffic(mode bench.Mode) shared {
	var seen []sighting
	load := s.load()
	load.Mode, load.Silent, load.ConsumeAfter = mode, *silent, true
	load.ConfirmAfter, load.Warmup = askedAfter, settled+askedAfter
	load.Progress = func(p bench.Progress) {
		if p.Stage == bench.StageMeasuring {
			seen = append(seen, sighting{at: time.Now(), done: p.Done, left: s.unfinished()})
		}
	}
	before := s.claims()
	report := s.measure(load)
	if len(seen) < 2 {
		s.b.Fatal("-seconds must be at least 3, so that it can be seen how many messages pile up")
	}
	first, last := seen[0], seen[len(seen)-1]
	return shared{
		Report: finishing(report, first, last), claims: s.claims().since(before), silent: report.Balance.Silent,
		left: last.left,
	}
}

// sighting is how a load stood: how many messages its callers were done with, and how many were unfinished.
type sighting struct {
	at         time.Time
	done, left int64
}

// finishing has a report count the finished messages. For callers a silent message ends with its commit, and
// coordinators that let silent messages pile up would look faster than coordinators that deliver them.
func finishing(report bench.Report, first, last sighting) bench.Report {
	finished := last.done - first.done - (last.left - first.left)
	rate := float64(finished) / last.at.Sub(first.at).Seconds()
	for name := range report.CPU {
		report.CPU[name] *= report.Rate / rate
	}
	report.Rate = rate
	return report
}

// drain has the coordinators deliver n silent messages.
func (s *setup) drain(q *consumed, n int) shared {
	s.pileUp(n)
	f := s.drained(q, n)
	servers.Eventually(s.b, time.Minute, "all are finished", func() bool { return s.unfinished() == 0 })
	return f
}

// pileUp has a producer store messages and stay silent. They are due all at once, a while after the last of them is
// stored, as if the producer came within reach then.
func (s *setup) pileUp(n int) (due time.Time) {
	due = time.Now().Add(5*time.Second + time.Duration(n)*time.Second/slowest)
	s.store("silent", s.callbacks, n, func() time.Duration { return time.Until(due) })
	if !time.Now().Before(due) {
		s.b.Fatalf("%d messages could not be stored at %d a second", n, slowest)
	}
	s.written()
	return due
}

// drained waits until the n silent messages are delivered, and returns the time since the first delivery.
func (s *setup) drained(q *consumed, n int) shared {
	before, processes := s.claims(), s.processes()
	all, copies := q.ids.Load()+int64(n), q.copies.Load()
	left := func() int64 { return all - q.ids.Load() }
	servers.Eventually(s.b, 10*time.Minute, "the first is delivered", func() bool { return left() < int64(n) })
	begun, sample, most := time.Now(), processes.Sample(), left()
	servers.Eventually(s.b, 20*time.Minute, "all are delivered", func() bool { return left() <= 0 })
	took := time.Since(begun)
	report := bench.Report{
		Messages: most, Seconds: took.Seconds(), Rate: float64(most) / took.Seconds(),
		CPU: map[string]float64{},
	}
	for name, after := range processes.Sample() {
		report.CPU[name] = float64((after.CPU - sample[name].CPU).Microseconds()) / float64(most)
	}
	report.Balance.Copies = q.copies.Load() - copies
	return shared{Report: report, claims: s.claims().since(before), silent: int64(n)}
}

// slowest is at how many messages a second a backlog is stored at least.
const slowest = 3000

// reportScale compares several coordinators with one.
func reportScale(b *testing.B, t task, found map[int][]shared) {
	fmt.Printf("\n%s, %d bytes each, medians of %d rounds that took turns; claims of all rounds together\n\n", t.title,
		*bodySize,
		*rounds)
	fmt.Printf("| coordinators | messages/s | to one: median (all) | CPU µs/message: %s | %s |\n|%s\n",
		strings.Join(bench.Processes, ", "), claimColumns, strings.Repeat("---|", 11))
	for n := 1; n <= most; n++ {
		all := reports(found[n])
		ratios := pairs(all, reports(found[1]), rateOf)
		fmt.Printf("| %d | %.0f | %s | %s | %s |\n", n, medianOf(all, rateOf), ratioText(ratios), costs(all),
			claimsOf(found[n]))
		b.ReportMetric(median(ratios), fmt.Sprintf("%s-%d-ratio", t.name, n))
	}
}

func reports(found []shared) (all []bench.Report) {
	for _, f := range found {
		all = append(all, f.Report)
	}
	return all
}

// claimColumns are the columns of claimsOf.
const claimColumns = "looks | claim calls, of them in vain | claimed in a call | claims for each silent message | " +
	"leases lost | " +
	"further copies | unfinished at the end"

// claimsOf reports the claims of all rounds.
func claimsOf(found []shared) string {
	all, needed, copies := claims{}, int64(0), int64(0)
	for _, f := range found {
		all, needed, copies = all.plus(f.claims, 1), needed+f.silent, copies+f.Balance.Copies
	}
	vain := all.calls - all.fruitful
	left := medianOf(found, func(f shared) float64 { return float64(f.left) })
	return fmt.Sprintf("%.0f | %.0f, %.0f (%.1f %%) | %.1f | %.3f | %.0f | %d | %.0f", all.looks, all.calls, vain,
		100*vain/max(1, all.calls), all.messages/max(1, all.fruitful), all.messages/float64(max(1, needed)), all.lost,
		copies, left)
}
