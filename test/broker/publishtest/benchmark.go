package publishtest

import (
	"sync"
	"testing"
)

// BenchmarkBatch is how many messages a call of Benchmark's do publishes.
const BenchmarkBatch = 200

// Benchmark runs do as often as it takes for b.N messages, from five callers at once. One call before makes the
// connections.
func Benchmark(b *testing.B, do func()) {
	b.Helper()
	do()
	turns := make(chan struct{})
	var group sync.WaitGroup
	for range 5 {
		group.Go(func() {
			for range turns {
				do()
			}
		})
	}
	b.ReportAllocs()
	b.ResetTimer()
	for sent := 0; sent < b.N; sent += BenchmarkBatch {
		turns <- struct{}{}
	}
	close(turns)
	group.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}
