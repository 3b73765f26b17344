package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench"
)

// BenchmarkFull measures as much as is possible, in both modes; it is there to be profiled, for half of the time. make
// profiles draws its profiles as well.
//
//	go test ./test/bench -run '^$' -bench Full -benchtime 1x -args -seconds 15 -profiles "$PWD"/profiles
func BenchmarkFull(b *testing.B) {
	for b.Loop() {
		s := newSetup(b)
		for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
			load := s.load()
			load.Mode, load.ConsumeAfter = mode, true
			var profiling sync.WaitGroup
			if *profiles != "" {
				load.Progress = s.profileOnce(&profiling, mode, load.Duration)
			}
			report := s.measure(load)
			profiling.Wait()
			fmt.Printf("\n%s: %.0f messages/s, CPU µs/message %v, memory %v\n", mode, report.Rate, report.CPU,
				report.MostMemory)
			fmt.Printf("  half to ack %+v\n  Submit to ack %+v\n", report.HalfToAck, report.SubmitToAck)
		}
	}
}

// profileOnce begins to profile when the measurement begins.
func (s *setup) profileOnce(profiling *sync.WaitGroup, mode bench.Mode, long time.Duration) func(bench.Progress) {
	var once sync.Once
	return func(p bench.Progress) {
		if p.Stage == bench.StageMeasuring {
			once.Do(func() { profiling.Go(func() { s.profile(string(mode), long/2) }) })
		}
	}
}

// kinds are the saved profiles of Go's runtime: "profile" is the profile of the processor time.
var kinds = []string{"profile", "allocs", "mutex", "block"}

// profile saves the profiles of the coordinator's runtime and of Redis during that time.
func (s *setup) profile(name string, long time.Duration) {
	s.redis.CLI("CONFIG", "SET", "latency-monitor-threshold", "1") // milliseconds; by default nothing is monitored
	s.redis.CLI("CONFIG", "RESETSTAT")
	s.redis.CLI("LATENCY", "RESET")
	var profiling sync.WaitGroup
	for _, kind := range kinds {
		profiling.Go(func() { s.profileOf(name, kind, long) })
	}
	profiling.Wait()
	for file, command := range map[string][]string{
		"commandstats": {"INFO", "commandstats"}, "latency-latest": {"--no-raw", "LATENCY", "LATEST"},
		"latency-histogram": {"--no-raw", "LATENCY", "HISTOGRAM"},
	} {
		s.save(name+"-"+file+".txt", []byte(s.redis.CLI(command...)))
	}
}

// profileOf saves one profile. All profiles except the one of the processor time are differences, so that earlier
// samples do not count.
func (s *setup) profileOf(name, kind string, long time.Duration) {
	profile, err := fetch(fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", s.pprof, kind, max(1, int(long.Seconds()))))
	if err != nil {
		s.b.Errorf("profile: %v", err)
		return
	}
	s.save(name+"-"+kind+".pprof", []byte(profile))
}

func (s *setup) save(name string, data []byte) {
	s.must(os.MkdirAll(*profiles, 0o755))
	s.must(os.WriteFile(filepath.Join(*profiles, name), data, 0o600))
}
