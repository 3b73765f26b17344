package app

import (
	"context"
	"fmt"
	"time"

	"github.com/msghandler/msghandler/internal/events"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// sweepSchedule is when records and indexes that do not match are repaired.
const sweepSchedule = "@every 10s"

// settingsSchedule is when Redis' settings are checked.
const settingsSchedule = "@every 30s"

// pulseSchedule is how often the counters in Redis are increased: a loss between two counts goes unnoticed.
const pulseSchedule = "@every 250ms"

// trimSchedule is how often the archive loses what is too old, and gives way to messages where Redis is nearly full.
// The number of its messages is bounded with each message.
const trimSchedule = "@every 2s"

// watchStore starts the loops that look after Redis: the sweeper, which repairs indexes, the check of the settings,
// which may change meanwhile, the pulse, which detects lost writes, and the trimming of the archive.
func (a *App) watchStore(store *redisstore.Store) error {
	sweep, err := a.newLoop("sweep", sweepSchedule, func(ctx context.Context) (bool, error) {
		err := a.forSweepTime(ctx, func(ctx context.Context) (bool, error) {
			repairs, more, err := store.Sweep(ctx)
			a.metrics.Swept(repairs.Checked, repairs.Made)
			if err == nil && !more {
				a.redis.clock.swept()
			}
			return more, err
		})
		return err == nil && a.redis.clock.sweeps.Load() > 0, err
	})
	if err != nil {
		return err
	}
	watch, err := a.newLoop("settings", settingsSchedule, func(ctx context.Context) (bool, error) {
		findings, err := store.Check(ctx)
		if err != nil {
			return false, err
		}
		a.countFindings(findings)
		a.noteUnsafe(findings)
		a.noteSettings(findings)
		return false, nil
	})
	if err != nil {
		return err
	}
	pulse, err := a.newLoop("pulse", pulseSchedule, func(ctx context.Context) (bool, error) {
		found, err := store.Pulse(ctx)
		if err != nil { // Redis may be the silent side
			a.peers.Doubt(time.Now())
		}
		a.tellRegressions(found.Regressions)
		if len(found.ClockJumps) > 0 {
			a.tellClockJumps(found.ClockJumps)
			sweep.Wake()
		}
		return false, err
	})
	if err != nil {
		return err
	}
	// The pulse writes to every shard and needs no memory: while the pulse fails no half message can be stored either.
	a.checks.set(checkWrites, healthy(pulse))
	sweep.Start()
	watch.Start()
	pulse.Start()
	return a.trimArchive(store)
}

// trimArchive starts the loop that trims the archive, where there is one.
func (a *App) trimArchive(store *redisstore.Store) error {
	if !store.Archives() {
		return nil
	}
	return a.repeat("archive", trimSchedule, func(ctx context.Context) error {
		return a.forSweepTime(ctx, store.TrimArchive)
	})
}

// sweepTime is how long the sweeper works at each tick of its schedule. Without pauses the sweeper would read all
// messages at every start, while a backlog waits.
const sweepTime = 500 * time.Millisecond

// forSweepTime sweeps slice after slice until no slice is left or sweepTime is over. A stop of the coordinator does not
// wait for a slice, which takes seconds with a slow Redis. The stop interrupts the slice, and a later sweep does the
// rest.
func (a *App) forSweepTime(ctx context.Context, slice func(context.Context) (more bool, err error)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(a.life, cancel)()
	for begun := time.Now(); time.Since(begun) < sweepTime; {
		more, err := slice(ctx)
		if a.life.Err() != nil {
			return nil
		}
		if err != nil || !more {
			return err
		}
	}
	return nil
}

// tellRegressions reports that Redis has lost acknowledged writes. Only the producers can know which messages are
// missing.
func (a *App) tellRegressions(found []redisstore.Regression) {
	if len(found) == 0 {
		return
	}
	at := time.Now().UTC().Format(time.RFC3339)
	for _, r := range found {
		a.logger.Error("Redis data rollback detected: acknowledged writes are missing; messages may be lost or sent again",
			"shard", r.Shard, "missing", r.What,
			"remedy", "compare the producers' orders of the last minutes with what was delivered; then see "+
				"docs/reference/guarantees.md, When Redis forgets")
	}
	a.metrics.Regressed(len(found))
	note := fmt.Sprintf("data rollback detected at %s (%d shards, such as %d: %s); see the log",
		at, len(found), found[0].Shard, found[0].What)
	a.events.Note(events.StoreRegressed, "", note)
	a.redis.regressed.Store(&note)
}

// regression is the note about the last data rollback in the readiness check, as long as this process lives.
func (a *App) regression() string {
	if note := a.redis.regressed.Load(); note != nil {
		return *note
	}
	return ""
}
