package bench

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/bench"
)

// BenchmarkOffered measures how long messages take at a rate that is below what is possible, in both modes.
//
//	go test ./test/bench -run '^$' -bench Offered -benchtime 1x -args -rate 4000 -seconds 10
func BenchmarkOffered(b *testing.B) { loadBothModes(b, *rate) }

// BenchmarkFull measures as much as is possible, in both modes; it is there to be profiled.
//
//	go test ./test/bench -run '^$' -bench Full -benchtime 1x -args -seconds 15 -profiles "$PWD"/profiles
func BenchmarkFull(b *testing.B) { loadBothModes(b, 0) }

func loadBothModes(b *testing.B, offered int) {
	for b.Loop() {
		s := newSetup(b)
		for _, mode := range []bench.Mode{bench.Gathered, bench.Unary} {
			load := s.load()
			load.Mode, load.Rate, load.ConsumeAfter = mode, offered, true
			var profiling sync.WaitGroup
			if *profiles != "" {
				load.Progress = s.profileOnce(&profiling, mode, load.Duration)
			}
			report := s.measure(load)
			profiling.Wait()
			fmt.Printf("\n%s: %.0f messages/s, %.0f bytes in Redis a pending message, CPU µs/message %v, memory %v\n", mode,
				report.Rate, report.RedisBytes, report.CPU, report.MostMemory)
			fmt.Printf("  half to ack %+v\n  Submit to ack %+v\n", report.HalfToAck, report.SubmitToAck)
		}
	}
}

// profileOnce begins to profile when it hears that it is measured now.
func (s *setup) profileOnce(profiling *sync.WaitGroup, mode bench.Mode, long time.Duration) func(bench.Progress) {
	var once sync.Once
	return func(p bench.Progress) {
		if p.Stage == bench.StageMeasuring {
			once.Do(func() { profiling.Go(func() { s.profile(string(mode), long/2) }) })
		}
	}
}

// profile saves what the coordinator's runtime and Redis tell of themselves meanwhile.
func (s *setup) profile(name string, long time.Duration) {
	s.save(name+"-commandstats-before.txt", []byte(s.redis.CLI("INFO", "commandstats")))
	defer func() { s.save(name+"-commandstats-after.txt", []byte(s.redis.CLI("INFO", "commandstats"))) }()
	for _, kind := range []string{fmt.Sprintf("profile?seconds=%d", max(1, int(long.Seconds()))), "allocs"} {
		response, err := http.Get("http://" + s.pprof + "/debug/pprof/" + kind)
		if err != nil {
			s.b.Errorf("profile: %v", err)
			return
		}
		data, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil {
			s.b.Errorf("profile: %v", err)
			return
		}
		kind, _, _ = strings.Cut(kind, "?")
		s.save(name+"-"+kind+".pprof", data)
	}
}

func (s *setup) save(name string, data []byte) {
	s.must(os.MkdirAll(*profiles, 0o755))
	s.must(os.WriteFile(filepath.Join(*profiles, name), data, 0o600))
}
