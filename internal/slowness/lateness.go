package slowness

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// tick is how long a Lateness sleeps, and tolerated by how much it may wake up too late: a busy machine has other
	// goroutines and processes to run first.
	tick, tolerated = 100 * time.Millisecond, 20 * time.Millisecond
)

// Lateness measures by how much this process runs too late: a CPU limit or other processes take its CPU, or the process
// or its machine is paused.
type Lateness struct{ total atomic.Int64 }

// Run measures until the context ends.
func (l *Lateness) Run(ctx context.Context) {
	for {
		begun := time.Now()
		select {
		case <-ctx.Done():
			return
		case <-time.After(tick):
		}
		l.note(time.Since(begun) - tick)
	}
}

func (l *Lateness) note(late time.Duration) {
	if late > tolerated {
		l.total.Add(int64(late))
	}
}

// Total is the lateness so far.
func (l *Lateness) Total() time.Duration { return time.Duration(l.total.Load()) }

// Throttling reads how many periods the CPU limit of this process had, and in how many of them the limit stopped the
// process. Both are 0 where the kernel does not tell.
func Throttling() (periods, throttled int64) {
	own, _ := os.ReadFile("/proc/self/cgroup") // elsewhere than on Linux there is none
	_, path, _ := strings.Cut(string(own), "0::")
	path, _, _ = strings.Cut(path, "\n")
	for _, dir := range []string{"/sys/fs/cgroup" + path, "/sys/fs/cgroup", "/sys/fs/cgroup/cpu"} {
		if stat, err := os.ReadFile(dir + "/cpu.stat"); err == nil { //nolint:gosec // the kernel names the directory
			if periods, throttled = throttling(string(stat)); periods > 0 {
				break
			}
		}
	}
	return periods, throttled
}

func throttling(stat string) (periods, throttled int64) {
	for line := range strings.Lines(stat) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseInt(value, 10, 64) // the kernel writes numbers
		switch name {
		case "nr_periods":
			periods = n
		case "nr_throttled":
			throttled = n
		}
	}
	return periods, throttled
}
