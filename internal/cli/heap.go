package cli

import (
	"os"
	"runtime"
)

// spareHeap is the garbage in bytes that may pile up beyond Go's default.
const spareHeap = 64 << 20

// letGarbagePileUp has garbage collected less often until it is told to end. By default that happens whenever the heap
// has doubled, and a coordinator's is small, whatever waits: it would be a fifth of its work under load. Memory that is
// never touched takes no room and makes the collector believe in a larger heap, so that spareHeap comes to what it lets
// pile up, whatever is in use; a higher GOGC would multiply that. Who sets GOGC or GOMEMLIMIT knows better.
func letGarbagePileUp() (end func()) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		if os.Getenv(name) != "" {
			return func() {}
		}
	}
	untouched := make([]byte, spareHeap)
	return func() { runtime.KeepAlive(untouched) }
}
