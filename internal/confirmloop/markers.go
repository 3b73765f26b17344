package confirmloop

import (
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// markerDeleter deletes markers in the background, one batch at a time for each target: markers that no message waits
// for, and markers whose first deletion failed. After a few tries a marker is left to the producer's own clean-up.
type markerDeleter struct {
	config Config
	delete func(target halfmsg.Target, ids []string) error
	// work has a goroutine for each target with markers; closing is closed when pauses end.
	work    lifecycle.Group
	closing chan struct{}

	mu      sync.Mutex
	targets map[halfmsg.Target][]marker
	waiting int
	closed  bool
}

// marker is one that is to be deleted, and how often that has failed.
type marker struct {
	id       string
	failures int
}

// deletionPause is the pause of a target after a failed deletion.
var deletionPause = backoff.Exponential(time.Second, time.Minute)

func newMarkerDeleter(config Config, deleteBusiness func(halfmsg.Target, []string) error) *markerDeleter {
	return &markerDeleter{
		config: config, delete: deleteBusiness,
		closing: make(chan struct{}), targets: map[halfmsg.Target][]marker{},
	}
}

// pending is how many markers wait here.
func (l *markerDeleter) pending() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.waiting
}

// add takes markers whose deletion has failed so many times. It returns at once, unless the deleter is closed: then
// each deletion is tried once before add returns.
func (l *markerDeleter) add(target halfmsg.Target, ids []string, failures int) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		if failures > 0 || l.delete(target, ids) != nil {
			l.config.Metrics.MarkersLeft(target.Producer, len(ids))
		}
		return
	}
	queue, working := l.targets[target]
	room := max(0, min(l.config.limits.deleteBacklog-l.waiting, l.config.limits.deleteBacklog/4-len(queue)))
	taken := ids[:min(room, len(ids))]
	for _, id := range taken {
		queue = append(queue, marker{id: id, failures: failures})
	}
	l.targets[target] = queue
	l.waiting += len(taken)
	if !working {
		l.work.Go(func() { l.run(target, failures) })
	}
	l.mu.Unlock()
	if left := len(ids) - len(taken); left > 0 {
		l.config.Metrics.MarkersLeft(target.Producer, left)
	}
}

// run deletes a target's markers until none waits, with a pause after each of so many failures in a row.
func (l *markerDeleter) run(target halfmsg.Target, failures int) {
	for {
		markers := l.take(target)
		if len(markers) == 0 {
			return
		}
		if failures > 0 {
			l.pause(deletionPause.Delay(failures - 1))
		}
		ids := make([]string, len(markers))
		for i, m := range markers {
			ids[i] = m.id
		}
		if err := l.delete(target, ids); err != nil {
			failures++
			l.again(target, markers)
			continue
		}
		failures = 0
	}
}

// take takes the next batch of a target, or ends its work when there is none.
func (l *markerDeleter) take(target halfmsg.Target) []marker {
	l.mu.Lock()
	defer l.mu.Unlock()
	queue := l.targets[target]
	if len(queue) == 0 {
		delete(l.targets, target)
		return nil
	}
	n := min(len(queue), l.config.Batch)
	l.targets[target] = queue[n:]
	l.waiting -= n
	return queue[:n]
}

// again puts those back that may still be tried.
func (l *markerDeleter) again(target halfmsg.Target, markers []marker) {
	l.mu.Lock()
	defer l.mu.Unlock()
	left := 0
	for _, m := range markers {
		if m.failures++; m.failures >= l.config.limits.deleteTries || l.closed || l.waiting >= l.config.limits.deleteBacklog {
			left++
			continue
		}
		l.targets[target] = append(l.targets[target], m)
		l.waiting++
	}
	if left > 0 {
		l.config.Metrics.MarkersLeft(target.Producer, left)
	}
}

func (l *markerDeleter) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.closing:
	}
}

// close has what waits tried once more, without any pause; work tells when that is done.
func (l *markerDeleter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
}
