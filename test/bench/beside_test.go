package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench/compare"
)

// The load of an open browser: the overview refreshes itself, and now and then the operator looks for a missing
// message, which is the most expensive page. Here the search is as frequent as the overview.
const (
	refresh  = 5 * time.Second
	overview = "/"
	search   = "/messages?state=pending&exchange=none"
)

// BenchmarkBesideConsole measures how an operator at the console slows senders down, while a million messages are
// pending: rounds of whole deliveries with and without the operator take turns. The spread shows the machine's own
// share of the difference, so the CPU time of the pages is measured alone as well.
//
//	go test ./test/bench -run '^$' -bench BesideConsole -benchtime 1x -timeout 60m -args -rounds 8 -seconds 10
func BenchmarkBesideConsole(b *testing.B) {
	for b.Loop() {
		s := newSetup(b)
		s.stand(*standing)
		s.pageCosts()
		s.watched(true) // warms all up
		var alone, watched []figure
		for round := range *rounds {
			for _, look := range []bool{round%2 == 0, round%2 != 0} {
				f := s.watched(look)
				if look {
					watched = append(watched, f)
				} else {
					alone = append(alone, f)
				}
				b.Logf("round %d, operator %t: %.0f messages/s, %.1f us", round+1, look, f.rate, f.cpu)
			}
		}
		reportBeside(alone, watched)
	}
}

// watched measures one round, with or without an operator at the console.
func (s *setup) watched(look bool) figure {
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(refresh / 2)
		defer ticker.Stop()
		for path, other := overview, search; look; path, other = other, path {
			if _, err := s.visit(path); err != nil {
				s.b.Error(err)
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	defer func() { end(); <-ended }()
	load := s.load()
	load.RedisURL = ""
	report := s.measure(load)
	return figure{
		rate: report.Rate, p99: report.SubmitToAck.P99, cpu: report.CPU[compare.Coordinator] + report.CPU[compare.Redis],
	}
}

// reportBeside reports how rounds with an operator at the console compare with the rounds beside them.
func reportBeside(alone, watched []figure) {
	fmt.Print("\n| | messages/s | p99 | CPU us/message: coordinator and Redis |\n|---|---|---|---|\n")
	for _, one := range []struct {
		name string
		all  []figure
	}{{"without an operator", alone}, {"with an operator", watched}} {
		fmt.Printf("| %s | %.0f | %s | %.1f |\n", one.name, compare.Median(one.all, func(f figure) float64 { return f.rate }),
			milliseconds(compare.Median(one.all, func(f figure) float64 { return f.p99 })),
			compare.Median(one.all, func(f figure) float64 { return f.cpu }))
	}
	for _, of := range []struct {
		name string
		is   func(figure) float64
	}{
		{"messages/s", func(f figure) float64 { return f.rate }},
		{"CPU of a message", func(f figure) float64 { return f.cpu }},
	} {
		ratios := pairs(watched, alone, of.is)
		slices.Sort(ratios)
		n := len(ratios)
		fmt.Printf("%s, pairs of rounds: median ratio %.4f, middle half %.4f to %.4f, all %.4f to %.4f\n",
			of.name, ratios[n/2], ratios[n/4], ratios[n-1-n/4], ratios[0], ratios[n-1])
	}
}

// pageCosts reports the CPU time of each page, less what the processes use when idle.
func (s *setup) pageCosts() {
	const times = 20
	idle := s.used(func() { <-time.After(10 * time.Second) })
	for _, path := range []string{overview, search} {
		begun := time.Now()
		used := s.used(func() {
			for range times {
				s.get(path)
			}
		})
		share := time.Since(begun).Seconds() / 10
		for name, is := range used {
			used[name] = (is - time.Duration(share*float64(idle[name]))) / times
		}
		fmt.Printf("CPU of one %s: coordinator %v, Redis %v\n", path, used[compare.Coordinator], used[compare.Redis])
	}
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
