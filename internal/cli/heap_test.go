package cli

import (
	"runtime"
	"runtime/metrics"
	"testing"
)

// heapGoal is how large the heap gets before garbage is collected again, in bytes.
func heapGoal() uint64 {
	runtime.GC()
	goal := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(goal)
	return goal[0].Value.Uint64()
}

func TestCollectorIsRelaxedUnlessConfigured(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "900MiB") // as in the manifests; the limit of memory goes beside it
	before := heapGoal()
	end := relaxCollector()
	// What is untouched counts as in use, and as much again may pile up; some MiB are there anyway.
	if goal := heapGoal(); goal < before+3*spareHeap/2 {
		t.Errorf("garbage is collected at %d bytes, and at %d without", goal, before)
	}
	end()
	t.Setenv("GOGC", "100")
	before = heapGoal()
	defer relaxCollector()()
	if goal := heapGoal(); goal > before+spareHeap {
		t.Errorf("with GOGC garbage is collected at %d bytes, and at %d without", goal, before)
	}
}
