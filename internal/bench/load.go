package bench

import (
	"context"
	"sync"
	"time"

	"github.com/msghandler/msghandler/internal/backoff"
)

// load makes messages until the time is over or ctx ends, and returns when their callers have their answers.
func (r *run) load(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, r.config.Warmup+r.config.Duration)
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
// late as its waiting: its time runs from when it was due.
func (r *run) openLoop(ctx context.Context) {
	var open sync.WaitGroup
	defer open.Wait()
	places := make(chan struct{}, maxOpen)
	interval := time.Second / time.Duration(r.config.Rate)
	timer := time.NewTimer(0)
	defer timer.Stop()
	begun := time.Now()
	for n := 0; ; n++ {
		due := begun.Add(time.Duration(n) * interval)
		if wait := time.Until(due); wait > 0 {
			timer.Reset(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			return
		}
		s := r.producers[n%len(r.producers)]
		open.Go(func() {
			_ = r.one(ctx, s, due) // it is counted
			<-places
		})
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

// submit submits a message and notes how long it took until the broker had it.
func (r *run) submit(ctx context.Context, s *sender, number int, due time.Time) error {
	submitted := time.Now()
	r.tally.submit(number, submitted)
	if err := s.submit(ctx, r.tally.id(number)); err != nil {
		return err
	}
	r.latencies.acknowledged(due, submitted, time.Now())
	return nil
}

// delivered takes a delivery from a queue.
func (r *run) delivered(id string, at time.Time) {
	if submitted := r.tally.deliver(id); !submitted.IsZero() {
		r.latencies.delivered(submitted, at)
	}
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
			r.latencies.listen(true)
			teller.stage = StageMeasuring
		case <-teller.ticker.C:
			teller.tell(r)
		case <-ctx.Done():
			r.latencies.listen(false)
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
