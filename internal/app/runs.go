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
	// runsSchedule is the schedule of the search for coordinators that ended without a clean stop.
	runsSchedule = "@every 5s"
	// endsLately is how long ago an end counts for the metric, and for a crash loop.
	endsLately = 10 * time.Minute
	// noteTimeout bounds the wait of a stop for an unavailable Redis.
	noteTimeout = time.Second
)

// runs knows which coordinators ended without a clean stop. Its zero value knows of none.
type runs struct {
	mu   sync.Mutex
	ends []redisstore.UncleanEnd
	// failedAt is the time of the last failed count in Redis, in Unix nanoseconds, and at first the start. Redis may have
	// been unavailable until then, so other coordinators could not count either.
	failedAt atomic.Int64
	// broken says that a part of this coordinator has failed, so the stop that follows is not clean.
	broken atomic.Bool
}

// counted notes whether this coordinator could count in the pulse.
func (r *runs) counted(err error) {
	if err != nil {
		r.failedAt.Store(time.Now().UnixNano())
	}
}

// judges says whether silence proves the end of a coordinator: not while Redis may be the silent side.
func (r *runs) judges(now time.Time) bool {
	return now.Sub(time.Unix(0, r.failedAt.Load())) > redisstore.RunSilence
}

// set keeps the ends and returns the ends that this coordinator must report.
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

// watchRuns records the run of this coordinator and looks for others that ended without a clean stop.
func (a *App) watchRuns(ctx context.Context, store *redisstore.Store) error {
	a.runs.failedAt.Store(time.Now().UnixNano())
	a.metrics.UncleanEnds(func() int { return len(a.runs.since(time.Now().Add(-endsLately))) })
	_ = a.noteRun(ctx, store) // the loop retries, and logs the error
	return a.repeat("runs", runsSchedule, func(ctx context.Context) error { return a.noteRun(ctx, store) })
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
		"coordinators", len(unreported), "last_coordinator", last.Instance,
		"last_seen", last.LastSeenAt.UTC().Format(time.RFC3339),
		"recent_ends", len(a.runs.since(time.Now().Add(-endsLately))), "remedy", endsRemedy)
	a.events.Note(events.UncleanEnd, "",
		fmt.Sprintf("%d coordinators ended without a clean stop, the last was %s", len(unreported), last.Instance))
	return nil
}

// noteCleanStop records a clean stop in Redis.
func (a *App) noteCleanStop(ctx context.Context, store *redisstore.Store) {
	if a.runs.broken.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	_, _ = store.SharePeers(ctx, "") // otherwise the counts are forgotten soon
	err := a.shareSelf(ctx, store, true)
	if err == nil { // otherwise others would take this coordinator for a running one
		err = store.NoteCleanStop(ctx)
	}
	if err != nil {
		a.logger.Warn("Redis does not answer; the others will say that this coordinator ended without a clean stop",
			"cause", err)
	}
}
