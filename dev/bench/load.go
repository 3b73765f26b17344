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

// failurePause is how long a caller waits after a failure, so that callers do not flood an unavailable coordinator.
const failurePause = 50 * time.Millisecond

// closedLoop has each caller begin a message when the caller's previous message has ended.
func (r *run) closedLoop(ctx context.Context) {
	var callers sync.WaitGroup
	for i := range r.config.Callers {
		s := r.producers[i%len(r.producers)]
		callers.Go(func() {
			for ctx.Err() == nil {
				if err := r.process(ctx, s, time.Now()); err != nil {
					_ = backoff.Sleep(ctx, failurePause) // the only error is the context's, which the loop checks
				}
			}
		})
	}
	callers.Wait()
}

// openLoop begins messages when they are due, independently of earlier messages. A message's time runs from when the
// message was due, so waiting for a place counts. Messages that still wait at the end of the load never begin.
func (r *run) openLoop(ctx context.Context) {
	var open sync.WaitGroup
	defer open.Wait()
	places := make(chan struct{}, maxOpen)
	interval := time.Second / time.Duration(r.config.Rate)
	for due, n := time.Now(), 0; due.Before(r.window.closes); due, n = due.Add(interval), n+1 {
		if wait := time.Until(due); wait > 0 {
			_ = backoff.Sleep(ctx, wait) // the error means that the context ended first
		}
		if time.Now().Before(due) || !take(ctx, places) {
			r.unbegun = r.window.missed(due, interval)
			return
		}
		s := r.producers[n%len(r.producers)]
		open.Go(func() {
			_ = r.process(ctx, s, due) // the tally counts errors
			<-places
		})
	}
}

// take takes a place. A free place is taken even when the context has ended.
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

// process takes one message from its half message to its end. The end of the load does not interrupt a message.
func (r *run) process(ctx context.Context, s *sender, due time.Time) error {
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

// submit submits a message and records the time until the broker's acknowledgement. The due time decides whether a
// message is timed, so messages that end after the window are timed as well.
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

// delivered records a delivery from a queue.
func (r *run) delivered(id string, at time.Time) {
	r.latencies.delivered(at, func() time.Time { return r.tally.deliver(id) })
}

// progressInterval is how often the progress of a run is reported.
const progressInterval = time.Second

// watch opens and closes the measurement window, and reports progress.
func (r *run) watch(ctx context.Context) {
	warm := time.NewTimer(r.config.Warmup)
	defer warm.Stop()
	progress := r.progressReporter(StageWarming)
	defer progress.stop()
	for {
		select {
		case <-warm.C:
			r.window.begin(r)
			progress.stage = StageMeasuring
		case <-progress.ticker.C:
			progress.report(r)
		case <-ctx.Done():
			r.window.end(r)
			return
		}
	}
}

// progressReporter reports how a run goes.
type progressReporter struct {
	ticker *time.Ticker
	stage  string
	done   int64
	at     time.Time
}

func (r *run) progressReporter(stage string) *progressReporter {
	ticker := time.NewTicker(progressInterval)
	return &progressReporter{ticker: ticker, stage: stage, done: r.tally.counts().done, at: time.Now()}
}

func (p *progressReporter) stop() { p.ticker.Stop() }

func (p *progressReporter) report(r *run) {
	now, c := time.Now(), r.tally.counts()
	r.config.Progress(Progress{
		Stage: p.stage, Done: c.done, Failed: c.failed, Delivered: c.delivered,
		Rate: float64(c.done-p.done) / now.Sub(p.at).Seconds(),
	})
	p.at, p.done = now, c.done
}

// settlePoll is how often settle checks whether all messages have arrived.
const settlePoll = 20 * time.Millisecond

// settle waits until every committed message is delivered, or no delivery has come for Config.Settle.
func (r *run) settle() {
	if r.config.ConsumeAfter {
		if err := r.queues.consume(r.delivered); err != nil {
			r.config.Logger.Error("the queues cannot be emptied", "cause", err)
			return
		}
	}
	poll := time.NewTicker(settlePoll)
	defer poll.Stop()
	progress := r.progressReporter(StageSettling)
	defer progress.stop()
	last, moved := r.tally.counts(), time.Now()
	for last.missing > 0 && time.Since(moved) < r.config.Settle {
		select {
		case <-progress.ticker.C:
			progress.report(r)
		case <-poll.C:
		}
		if now := r.tally.counts(); now != last {
			last, moved = now, time.Now()
		}
	}
}
