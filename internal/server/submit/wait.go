package submit

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Wait is how far a Submit waits for the outcome of its messages.
type Wait int

// How far a Submit waits. A wait also ends with any other outcome.
const (
	// NoWait returns when the Submit is stored.
	NoWait Wait = iota
	// UntilSendable waits for the verdict.
	UntilSendable
	// UntilDone waits until the broker has the message.
	UntilDone
)

// Reasons why a wait ended early, or did not begin.
var (
	ErrStopping               = errors.New("stopping")
	ErrWaitEnded              = errors.New("wait ended")
	ErrTooManyWaits           = errors.New("too many calls that wait")
	ErrTooManyWaitsOfProducer = errors.New("too many calls of one producer that wait")
)

// WaitEndedError is ErrWaitEnded, with the broker's refusal of the message: why the message has not got there.
type WaitEndedError struct{ LastError string }

func (e *WaitEndedError) Error() string { return ErrWaitEnded.Error() + "; last error: " + e.LastError }

func (e *WaitEndedError) Unwrap() error { return ErrWaitEnded }

// answerTime is how long before its deadline a wait ends at most, so that the answer reaches a caller who stops
// listening at the deadline. A short wait ends at nineteen twentieths of its time.
const answerTime = 200 * time.Millisecond

// pollSteps are the intervals at which the store is asked about a message with a waiting call. Another coordinator may
// own the message, and then nothing notifies this one. A message of this coordinator is mostly settled before the first
// look.
var pollSteps = backoff.Exponential(50*time.Millisecond, time.Second)

// claimedPatience is how long a message that this coordinator has claimed is not looked at: its owner notifies the
// wait, unless the message was handed back and another coordinator took the message. Under full load each look would
// be one more script for a message that is on its way.
const claimedPatience = 2 * time.Second

// maxPolls bounds the looks in flight of all waits. lookPause is how long the slot of a look without news stays
// taken: while the broker is away nothing moves, and Redis should not say so to every wait over and over. Both make
// 800 looks a second in all.
const (
	maxPolls  = 8
	lookPause = 10 * time.Millisecond
)

// reached reports whether a message in that state needs no more waiting: it came as far as was asked, or has another
// outcome.
func (w Wait) reached(state halfmsg.State) bool {
	switch w {
	case UntilSendable:
		return state != halfmsg.Pending
	case UntilDone:
		return state != halfmsg.Pending && state != halfmsg.Sendable
	}
	return true
}

// submitAndWait submits messages and waits for their outcomes as far as asked. The subscription begins before the
// Submit, or a message could be done before the subscription.
func (b *Batcher) submitAndWait(
	ctx context.Context, names []halfmsg.Name, wait Wait, submit func() ([]halfmsg.Submitted, error),
) ([]halfmsg.Result, error) {
	var moves *subscription
	if wait != NoWait {
		var err error
		if moves, err = b.watch.subscribe(names); err != nil {
			return nil, err
		}
		defer b.watch.unsubscribe(moves)
	}
	submitted, err := submit()
	if err != nil {
		return nil, err
	}
	results, claimed := make([]halfmsg.Result, len(submitted)), make([]bool, len(submitted))
	for i := range submitted {
		results[i], claimed[i] = submitted[i].Result, submitted[i].Claim != nil
	}
	if wait != NoWait {
		w := &waiter{batcher: b, wait: wait, subscription: moves, results: results, claimed: claimed}
		w.await(ctx)
	}
	return results, nil
}

// waiter is a call that waits for the outcomes of the messages it submitted.
type waiter struct {
	batcher      *Batcher
	wait         Wait
	subscription *subscription
	results      []halfmsg.Result
	// claimed says which of the messages this coordinator has claimed for the call, which began at begun.
	claimed []bool
	begun   time.Time
	// open holds the places of the messages that need more waiting.
	open map[int]struct{}
	// refusals are the broker's refusals that looks at the messages have found.
	refusals map[int]string
	// next are the places of the messages to look at now, passes how often all of them have been looked at.
	next   []int
	passes int
}

// await waits until each submitted message has reached its goal, and updates its result. A message whose wait ends
// early gets an error; its Submit is stored.
func (w *waiter) await(ctx context.Context) {
	w.batcher.watch.discard(w.subscription, halfmsg.Abandoned)
	w.begun, w.open, w.refusals = time.Now(), map[int]struct{}{}, map[int]string{}
	for i, r := range w.results {
		if r.Err == nil && !w.wait.reached(r.State) {
			w.open[i] = struct{}{}
		}
	}
	if err := w.run(ctx); err != nil {
		for i := range w.open {
			w.results[i].Err = err
			if last := w.refusals[i]; last != "" && errors.Is(err, ErrWaitEnded) {
				w.results[i].Err = &WaitEndedError{LastError: last}
			}
		}
	}
}

// endBefore ends a context a little before its deadline.
func endBefore(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, has := ctx.Deadline()
	if !has {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(answerTime, time.Until(deadline)/20)))
}

// run returns when nothing is open any more, or with the reason why the wait ended early.
func (w *waiter) run(ctx context.Context) error {
	stopping := w.batcher.config.Stopping
	ctx, cancel := endBefore(ctx)
	defer cancel()
	defer context.AfterFunc(stopping, cancel)()
	timer := time.NewTimer(pollSteps.Delay(0))
	defer timer.Stop()
	for len(w.open) > 0 {
		var slot chan<- struct{} // nil, which blocks, while there is nothing to look at
		if len(w.next) > 0 {
			slot = w.batcher.polls
		}
		select {
		case <-w.subscription.changed:
			w.batcher.watch.takeNews(w.subscription, w.learn)
		case <-timer.C:
			w.next = w.pollable()
			w.schedule(timer)
		case slot <- struct{}{}:
			w.lookAtNext(ctx)
			w.schedule(timer)
		case <-ctx.Done():
			if stopping.Err() != nil {
				return ErrStopping
			}
			return ErrWaitEnded
		}
	}
	return nil
}

// schedule sets the timer for the next pass, once all messages of this pass have been looked at.
func (w *waiter) schedule(timer *time.Timer) {
	if len(w.next) == 0 {
		w.passes++
		timer.Reset(pollSteps.Delay(w.passes))
	}
}

// learn takes in the state of a message.
func (w *waiter) learn(i int, state halfmsg.State) {
	if _, open := w.open[i]; !open {
		return
	}
	state = publicState(state)
	w.results[i].State = state
	if w.wait.reached(state) {
		delete(w.open, i)
	}
}

// pollable are the places of open messages that another coordinator may own.
func (w *waiter) pollable() (places []int) {
	all := time.Since(w.begun) >= claimedPatience
	for i := range w.open {
		if all || !w.claimed[i] {
			places = append(places, i)
		}
	}
	return places
}

// lookAtNext asks the store about one message, in the slot that was just taken. When the store cannot answer, the other
// messages wait for the next pass.
func (w *waiter) lookAtNext(ctx context.Context) {
	i := w.next[0]
	w.next = w.next[1:]
	release := func() { <-w.batcher.polls }
	if _, open := w.open[i]; !open { // a notification came first
		release()
		return
	}
	record, err := w.batcher.look(ctx, w.subscription.names[i])
	switch {
	case err == nil:
		w.refusals[i] = refusalOf(&record)
		w.learn(i, record.State)
	case errors.Is(err, halfmsg.ErrNotFound): // discarded, or forgotten long after its end
		w.results[i] = halfmsg.Result{Err: err}
		delete(w.open, i)
	case !errors.Is(err, halfmsg.ErrCorrupt):
		w.next = nil
	}
	if _, open := w.open[i]; open {
		time.AfterFunc(lookPause, release)
		return
	}
	release()
}

// refusalOf is what a client learns of the last error of a message: that the broker has refused the message, and why
// where the words are those of AMQP alone. Any other error may name servers, addresses and users, which clients do not
// learn.
func refusalOf(r *halfmsg.Record) string {
	switch {
	case r.PublishAttempts == 0:
		return ""
	case strings.HasPrefix(r.LastError, "returned by the broker: "), r.LastError == "nack by the broker":
		return r.LastError
	}
	return "refused by the broker"
}

// look asks the store for a message.
func (b *Batcher) look(ctx context.Context, name halfmsg.Name) (halfmsg.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, b.config.StoreTimeout)
	defer cancel()
	return b.config.Inspector.Get(ctx, name)
}
