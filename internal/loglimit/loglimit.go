// Package loglimit decides which of many events of one kind are worth a log line.
package loglimit

import (
	"sync"
	"time"
)

// Limiter lets each kind of event be logged once in an interval. It is safe for concurrent use.
type Limiter struct {
	interval time.Duration

	mu    sync.Mutex
	kinds map[string]*kind
}

// kind is the state of one kind of event.
type kind struct {
	loggedAt   time.Time
	suppressed int
}

// New returns a Limiter with an interval.
func New(interval time.Duration) *Limiter {
	return &Limiter{interval: interval, kinds: map[string]*kind{}}
}

// Due reports whether an event is to be logged, and how many of its kind were suppressed since the last log line.
func (l *Limiter) Due(name string) (suppressed int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[name]
	if k == nil {
		k = &kind{}
		l.kinds[name] = k
	}
	if now := time.Now(); now.Sub(k.loggedAt) >= l.interval {
		suppressed, k.suppressed, k.loggedAt = k.suppressed, 0, now
		return suppressed, true
	}
	k.suppressed++
	return 0, false
}
