package bench

import (
	"context"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// load makes messages until the time is over or ctx ends, and returns when their callers have their answers.
func (r *run) load(ctx context.Context) {
	r.window.opens = time.Now().Add(r.config.Warmup)
	r.window.closes = r.window.opens.Add(r.config.Duration)
	ctx, cancel := context.WithDeadline(ctx, r.window.closes)
	defer cancel()
	var watching sync.WaitGroup
	watching.Go(func() { r.watch(ctx) })
	if r.config.Rate > 0 {
		r.openLoop(ctx)
	} else {
		r.closedLoop(ctx)
	}
	watching.Wait()
}

// failurePause is how long a caller rests whose message failed: coordinators that are away are not to be hammered.
const failurePause = 50 * time.Millisecond

// closedLoop has each caller begin a message when its last one has ended.
func (r *run) closedLoop(ctx context.Context) {
	var callers sync.WaitGroup
	for i := range r.config.Callers {
		s := r.producers[i%len(r.producers)]
		callers.Go(func() {
			for ctx.Err() == nil {
				if err := r.one(ctx, s, time.Now()); err != nil {
					_ = backoff.Sleep(ctx, failurePause) // its error is the context's, which the loop looks at
				}
			}
		})
	}
	callers.Wait()
}

// openLoop begins messages when they are due, whatever became of those before. One that has to wait for its turn is as
// late as its waiting: its time runs from when it was due. Those that still wait when the time is over never begin.
func (r *run) openLoop(ctx context.Context) {
	var open sync.WaitGroup
	defer open.Wait()
	places := make(chan struct{}, maxOpen)
	interval := time.Second / time.Duration(r.config.Rate)
	for due, n := time.Now(), 0; due.Before(r.window.closes); due, n = due.Add(interval), n+1 {
		if wait := time.Until(due); wait > 0 {
			_ = backoff.Sleep(ctx, wait) // its error is the context's: it is not due then
		}
		if time.Now().Before(due) || !take(ctx, places) {
			r.unbegun = r.window.missed(due, interval)
			return
		}
		s := r.producers[n%len(r.producers)]
		open.Go(func() {
			_ = r.one(ctx, s, due) // it is counted
			<-places
		})
	}
}

// take takes a place. A context that has ended keeps nobody from one that is free.
func take(ctx context.Context, places chan<- struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// one is the life of one message, from when it is due. It is not broken off when the load ends.
func (r *run) one(ctx context.Context, s *sender, due time.Time) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	number, planned := r.tally.plan(r.config.Silent, r.config.Rollback)
	id := r.tally.id(number)
	err := s.half(ctx, id)
	switch {
	case err != nil:
		r.tally.refused(number)
	case planned == rolledBack:
		err = s.rollback(ctx, id)
	case planned == silent:
		err = s.commit(ctx, id)
	default:
		if err = s.commit(ctx, id); err == nil {
			err = r.submit(ctx, s, number, due)
		}
	}
	r.tally.end(err)
	return err
}

// submit submits a message and notes how long it took until the broker had it. Whether it is timed was decided when it
// was due: one that takes longer than the window is open counts like all others.
func (r *run) submit(ctx context.Context, s *sender, number int, due time.Time) error {
	submitted, timed := time.Now(), r.window.covers(due)
	if timed && !r.config.ConsumeAfter {
		r.tally.submit(number, submitted)
	}
	if err := s.submit(ctx, r.tally.id(number)); err != nil {
		return err
	}
	if timed {
		r.latencies.acknowledged(due, submitted, time.Now())
	}
	return nil
}

// delivered takes a delivery from a queue.
func (r *run) delivered(id string, at time.Time) {
	r.latencies.delivered(at, func() time.Time { return r.tally.deliver(id) })
}

// progressInterval is how often it is told how a run goes.
const progressInterval = time.Second

// watch opens and closes the window in which is measured, and tells how it goes.
func (r *run) watch(ctx context.Context) {
	warm := time.NewTimer(r.config.Warmup)
	defer warm.Stop()
	teller := r.teller(StageWarming)
	defer teller.stop()
	for {
		select {
		case <-warm.C:
			r.window.begin(r)
			teller.stage = StageMeasuring
		case <-teller.ticker.C:
			teller.tell(r)
		case <-ctx.Done():
			r.window.end(r)
			return
		}
	}
}

// teller tells how a run goes.
type teller struct {
	ticker *time.Ticker
	stage  string
	done   int64
	at     time.Time
}

func (r *run) teller(stage string) *teller {
	return &teller{ticker: time.NewTicker(progressInterval), stage: stage, done: r.tally.counts().done, at: time.Now()}
}

func (t *teller) stop() { t.ticker.Stop() }

func (t *teller) tell(r *run) {
	now, c := time.Now(), r.tally.counts()
	r.config.Progress(Progress{
		Stage: t.stage, Done: c.done, Failed: c.failed, Delivered: c.delivered,
		Rate: float64(c.done-t.done) / now.Sub(t.at).Seconds(),
	})
	t.at, t.done = now, c.done
}

// settlePoll is how often is looked whether all has arrived.
const settlePoll = 20 * time.Millisecond

// settle waits until everything that committed was delivered, or nothing more was for as long as it is waited.
func (r *run) settle() {
	if r.config.ConsumeAfter {
		if err := r.queues.consume(r.delivered); err != nil {
			r.config.Logger.Error("the queues cannot be emptied", "error", err)
			return
		}
	}
	poll := time.NewTicker(settlePoll)
	defer poll.Stop()
	teller := r.teller(StageSettling)
	defer teller.stop()
	last, moved := r.tally.counts(), time.Now()
	for last.missing > 0 && time.Since(moved) < r.config.Settle {
		select {
		case <-teller.ticker.C:
			teller.tell(r)
		case <-poll.C:
		}
		if now := r.tally.counts(); now != last {
			last, moved = now, time.Now()
		}
	}
}
