package server

import (
	"context"
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// pollSteps is how often the store is asked about messages that somebody waits for: another instance may own them, and
// then nobody tells us. Of a message of our own we are most often told before the first look.
var pollSteps = backoff.Exponential(50*time.Millisecond, time.Second)

// ownPatience is how long a message that this instance has claimed itself is not looked at: we are told of it, unless
// it had to be handed back and another instance took it. Under full load each look would be one more script for a
// message that is on its way, just when there is no time for any.
const ownPatience = 2 * time.Second

// maxPolls bounds the looks that are under way at once, whoever waits, and lookPause is how long the place of one that
// told nothing new stays empty: while the broker is away nothing moves, however many wait, and Redis has better to do
// than to say that to each of them over and over. It is 800 looks a second in all.
const (
	maxPolls  = 8
	lookPause = 10 * time.Millisecond
)

// reached says whether a message in that state needs no more waiting: it came as far as was asked, or its fate is
// another.
func reached(wait msghandlerv1.Wait, state halfmsg.State) bool {
	switch wait {
	case msghandlerv1.Wait_WAIT_SENDABLE:
		return state != halfmsg.Pending
	case msghandlerv1.Wait_WAIT_DONE:
		return state != halfmsg.Pending && state != halfmsg.Sendable
	}
	return true
}

// waiting is a call that waits for the fate of the messages it submitted.
type waiting struct {
	*Server
	wait         msghandlerv1.Wait
	subscription *subscription
	results      []halfmsg.Result
	// ours says which of the messages this instance has claimed for the call, which began at begun.
	ours  []bool
	begun time.Time
	// open holds the messages that are not where they should be yet, by their place in the call.
	open map[int]struct{}
	// next are those of them that are to be looked at now, and passes how often they have been.
	next   []int
	passes int
}

// await waits until each submitted message has reached what was asked for, and updates its result. Those whose wait
// ended early get an error; their submit stands.
func (w *waiting) await(ctx context.Context) {
	w.watch.discard(w.subscription, halfmsg.Abandoned)
	w.begun, w.open = time.Now(), map[int]struct{}{}
	for i, r := range w.results {
		if r.Err == nil && !reached(w.wait, r.State) {
			w.open[i] = struct{}{}
		}
	}
	if err := w.run(ctx); err != nil {
		for i := range w.open {
			w.results[i].Err = err
		}
	}
}

// run returns when nothing is open any more, or with the reason why the wait ended before that.
func (w *waiting) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.stopping, cancel)()
	timer := time.NewTimer(pollSteps.Delay(0))
	defer timer.Stop()
	for len(w.open) > 0 {
		var turn chan<- struct{} // nil, which never comes, while nothing is to be looked at
		if len(w.next) > 0 {
			turn = w.polls
		}
		select {
		case <-w.subscription.changed:
			w.watch.takeNews(w.subscription, w.learn)
		case <-timer.C:
			w.next = w.foreign()
			w.rest(timer)
		case turn <- struct{}{}:
			w.lookAtNext(ctx)
			w.rest(timer)
		case <-ctx.Done():
			if w.stopping.Err() != nil {
				return errStopping
			}
			return errWaitEnded
		}
	}
	return nil
}

// rest lets some time pass before the store is asked again, once all that was to be looked at has been.
func (w *waiting) rest(timer *time.Timer) {
	if len(w.next) == 0 {
		w.passes++
		timer.Reset(pollSteps.Delay(w.passes))
	}
}

// learn takes in where a message stands.
func (w *waiting) learn(i int, state halfmsg.State) {
	if _, open := w.open[i]; !open {
		return
	}
	state = publicState(state)
	w.results[i].State = state
	if reached(w.wait, state) {
		delete(w.open, i)
	}
}

// foreign are the messages that are open and may be in other hands.
func (w *waiting) foreign() (places []int) {
	all := time.Since(w.begun) >= ownPatience
	for i := range w.open {
		if all || !w.ours[i] {
			places = append(places, i)
		}
	}
	return places
}

// lookAtNext asks the store about one message, in the place that was just taken. When it cannot answer, the others are
// not asked about before the next time.
func (w *waiting) lookAtNext(ctx context.Context) {
	i := w.next[0]
	w.next = w.next[1:]
	free := func() { <-w.polls }
	if _, open := w.open[i]; !open { // it has been told of since
		free()
		return
	}
	state, err := w.look(ctx, w.subscription.names[i])
	switch {
	case err == nil:
		w.learn(i, state)
	case errors.Is(err, halfmsg.ErrNotFound): // discarded, or forgotten long after its end
		w.results[i] = halfmsg.Result{Err: err}
		delete(w.open, i)
	case !errors.Is(err, halfmsg.ErrCorrupt):
		w.next = nil
	}
	if _, open := w.open[i]; open {
		time.AfterFunc(lookPause, free)
		return
	}
	free()
}

// look asks the store where a message stands.
func (s *Server) look(ctx context.Context, name halfmsg.Name) (halfmsg.State, error) {
	ctx, cancel := s.withStoreTimeout(ctx)
	defer cancel()
	record, err := s.config.Inspector.Get(ctx, name)
	return record.State, err
}
