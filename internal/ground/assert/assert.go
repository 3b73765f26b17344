// Package assert states what must hold whenever a line runs. Assertions stay on in production: a broken one is counted,
// and changes, logs and stops nothing. Tests watch them: there a broken assertion is a failure.
//
// An assertion costs a comparison. Its rule is a constant text, which is also its name: no two assertions share one.
package assert

import (
	"maps"
	"strings"
	"sync"
	"sync/atomic"
)

// Watcher gets what the assertions of the process find. Its functions may be called concurrently, and must not block.
type Watcher struct {
	// Broken gets each assertion that does not hold, and which message or thing it is about.
	Broken func(rule, about string)
	// Reached gets each Sometimes that holds.
	Reached func(rule string)
}

var (
	watching atomic.Pointer[Watcher]

	mu     sync.Mutex
	broken = map[string]int64{} // by the rule
)

// Watch has a watcher told from now on, instead of the one before, which Watch returns; nil tells none.
func Watch(w *Watcher) (before *Watcher) { return watching.Swap(w) }

// Broken counts how often assertions of the process did not hold, by their rules.
func Broken() map[string]int64 {
	mu.Lock()
	defer mu.Unlock()
	return maps.Clone(broken)
}

// Always states that a condition holds each time. about names the message, such as its producer and its id.
func Always(holds bool, rule string, about ...string) {
	if !holds {
		report(rule, about)
	}
}

// Unreachable states that a line never runs.
func Unreachable(rule string, about ...string) { report(rule, about) }

// Sometimes states that a condition holds at least once in a long test: otherwise the test misses that case.
func Sometimes(holds bool, rule string) {
	if !holds {
		return
	}
	if w := watching.Load(); w != nil {
		w.Reached(rule)
	}
}

//go:noinline
func report(rule string, about []string) {
	mu.Lock()
	broken[rule]++
	mu.Unlock()
	if w := watching.Load(); w != nil {
		w.Broken(rule, strings.Join(about, "/"))
	}
}
