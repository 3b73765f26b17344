package cli

import (
	"os"
	"runtime"
)

// spareHeap is the garbage in bytes that may pile up beyond Go's default.
const spareHeap = 64 << 20

// relaxCollector makes garbage collection rarer until the returned function is called. By default a collection comes
// whenever the heap has doubled. A coordinator's heap is small however many messages wait, so collections would take a
// fifth of its work under load. Untouched memory takes no room and makes the collector assume a larger heap: spareHeap
// is then the allowed garbage at any load, where a higher GOGC would multiply the heap. A GOGC of the operator has
// precedence. A GOMEMLIMIT goes beside it: near the limit Go collects more often.
func relaxCollector() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	untouched := make([]byte, spareHeap)
	return func() { runtime.KeepAlive(untouched) }
}
