package app

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/msghandler/msghandler/internal/events"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

const (
	// runsSchedule is how often is looked for coordinators that ended without a clean stop.
	runsSchedule = "@every 5s"
	// endsLately is how long ago an end counts for the metric, and for a crash loop.
	endsLately = 10 * time.Minute
	// noteTimeout bounds what a stop waits for a Redis that does not answer.
	noteTimeout = time.Second
)

// runs knows which coordinators ended without a clean stop. Its zero value knows of none.
type runs struct {
	mu   sync.Mutex
	ends []redisstore.UncleanEnd
	// failedAt is when this coordinator could last not count in Redis, in Unix nanoseconds, and at first when it started:
	// until then Redis may have been away, so that others could not count either.
	failedAt atomic.Int64
	// broken says that a part of this coordinator has failed, so that its own stop is none of the clean ones.
	broken atomic.Bool
}

// counted notes whether this coordinator could count in the pulse.
func (r *runs) counted(err error) {
	if err != nil {
		r.failedAt.Store(time.Now().UnixNano())
	}
}

// judges says whether who is silent has ended: not while the silence may be that of Redis.
func (r *runs) judges(now time.Time) bool {
	return now.Sub(time.Unix(0, r.failedAt.Load())) > redisstore.RunSilence
}

// set keeps the ends, and returns those that this coordinator is to report.
func (r *runs) set(ends []redisstore.UncleanEnd) (unreported []redisstore.UncleanEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range ends {
		if end.Unreported {
			unreported = append(unreported, end)
		}
	}
	r.ends = ends
	return unreported
}

// since are the ends since then, the latest first.
func (r *runs) since(then time.Time) (ends []redisstore.UncleanEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, end := range r.ends {
		if end.LastSeenAt.After(then) {
			ends = append(ends, end)
		}
	}
	return ends
}

// watchRuns notes that this coordinator runs, and looks for others that ended without a clean stop.
func (a *App) watchRuns(ctx context.Context, store *redisstore.Store) error {
	a.runs.failedAt.Store(time.Now().UnixNano())
	a.metrics.UncleanEnds(func() int { return len(a.runs.since(time.Now().Add(-endsLately))) })
	_ = a.noteRun(ctx, store) // the loop tries again, and tells why it could not
	watch, err := a.newLoop("runs", runsSchedule, func(ctx context.Context) (bool, error) {
		return false, a.noteRun(ctx, store)
	})
	if err != nil {
		return err
	}
	watch.Start()
	return nil
}

func (a *App) noteRun(ctx context.Context, store *redisstore.Store) error {
	judge := a.runs.judges(time.Now())
	ends, err := store.NoteRun(ctx, judge)
	if err != nil || !judge {
		return err
	}
	unreported := a.runs.set(ends)
	if len(unreported) == 0 {
		return nil
	}
	last := unreported[0]
	a.logger.Warn(
		"coordinators ended without a clean stop; others go on with their messages when their leases end",
		"coordinators", len(unreported), "last", last.Instance, "last_seen", last.LastSeenAt.UTC().Format(time.RFC3339),
		"in_ten_minutes", len(a.runs.since(time.Now().Add(-endsLately))), "remedy", endsRemedy)
	a.events.Note(events.UncleanEnd, "",
		fmt.Sprintf("%d coordinators ended without a clean stop, the last was %s", len(unreported), last.Instance))
	return nil
}

// noteCleanStop says in Redis that this coordinator stops as it should.
func (a *App) noteCleanStop(ctx context.Context, store *redisstore.Store) {
	if a.runs.broken.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	if err := store.NoteCleanStop(ctx); err != nil {
		a.logger.Warn("Redis does not answer; the others will say that this coordinator ended without a clean stop",
			"error", err)
	}
}
