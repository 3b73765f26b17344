// Package submit gathers concurrent calls of producers into the store's batches, hands what a Submit has claimed to the
// pipeline, and waits for the outcome of submitted messages.
package submit

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/batch"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Config configures a Batcher. Every field is required.
type Config struct {
	Intake    halfmsg.Intake
	Inspector halfmsg.Inspector
	// Pipeline takes the messages that a Submit has claimed, to confirm them at once, and the messages that a trusted
	// Submit has made SENDABLE.
	Pipeline *delivery.Pipeline
	// Trusted reports whether a producer's Submit is its verdict.
	Trusted func(producer string) bool
	// Observer gets the moves of Create and Rollback.
	Observer Observer

	// ConfirmLease and SendLease are for how long a Submit, and a trusted Submit, claim messages.
	ConfirmLease, SendLease time.Duration
	// StoreTimeout bounds each call to the store.
	StoreTimeout time.Duration
	// Waiting is how many messages may wait for the store, for each kind of call.
	Waiting int
	// Calls is how many calls may be in flight. Half of them may wait for an outcome, and a quarter may be waiting calls
	// of one producer.
	Calls int
	// Stopping ends the waits when it ends. Until then a call whose client has left counts until its batch is answered.
	Stopping context.Context
}

// Observer gets the moves that calls of producers make in the store. Its methods must not block.
type Observer interface {
	// Observing reports whether moves are of interest.
	Observing() bool
	// Moved gets moves that were made.
	Moved(moves []halfmsg.Moved)
}

const (
	// gatherMax and gatherParallel: a batch is what comes in during one round trip to a server of the store. More batches
	// in flight would only make them smaller.
	gatherMax      = 500
	gatherParallel = 1
	// maxBatches is how many calls that bring a batch of their own may be in the store at once. Without the bound a few
	// clients could have thousands of batches in flight.
	maxBatches = 16
)

// Batcher takes in what producers store, submit and roll back. It implements halfmsg.Watcher, which ends waits. It is
// safe for concurrent use.
type Batcher struct {
	config Config
	watch  *watch

	creates   *batch.Group[halfmsg.Message, halfmsg.Result]
	recalls   *batch.Group[halfmsg.Message, halfmsg.Result]
	submits   *batch.Group[halfmsg.Name, halfmsg.Submitted]
	trusted   *batch.Group[halfmsg.Name, halfmsg.Submitted]
	rollbacks *batch.Group[halfmsg.Name, halfmsg.Result]

	// polls holds the slots for looks at single messages, batches the slots for calls that bring a batch of their own.
	polls, batches chan struct{}
}

var _ halfmsg.Watcher = (*Batcher)(nil)

// New returns a Batcher.
func New(config Config) *Batcher {
	b := &Batcher{
		config: config, watch: newWatch(config.Calls),
		polls: make(chan struct{}, maxPolls), batches: make(chan struct{}, maxBatches),
	}
	gather := batch.Config{
		Max: gatherMax, Parallel: gatherParallel, Waiting: config.Waiting, Timeout: config.StoreTimeout,
		Counting: config.Stopping,
	}
	lane := config.Intake.Lane
	ofMessage := func(m halfmsg.Message) string { return lane(m.Name) }
	b.creates = batch.NewInLanes(gather, ofMessage, b.create)
	b.recalls = batch.NewInLanes(gather, ofMessage, b.recall)
	b.submits = batch.NewInLanes(gather, lane, b.submit)
	b.trusted = batch.NewInLanes(gather, lane, b.submitTrusted)
	b.rollbacks = batch.NewInLanes(gather, lane, b.rollback)
	return b
}

// Queues counts the messages that wait for the store.
func (b *Batcher) Queues() map[string]func() int {
	return map[string]func() int{
		"create":   func() int { return b.creates.Waiting() + b.recalls.Waiting() },
		"submit":   func() int { return b.submits.Waiting() + b.trusted.Waiting() },
		"rollback": b.rollbacks.Waiting,
	}
}

// Wait waits for the batches in the store, including batches whose callers have left.
func (b *Batcher) Wait(ctx context.Context) error {
	return errors.Join(
		b.creates.Wait(ctx), b.recalls.Wait(ctx), b.submits.Wait(ctx), b.trusted.Wait(ctx), b.rollbacks.Wait(ctx),
	)
}

// Submit submits a message, in a batch that it may share with other calls, and waits for its outcome as far as asked.
func (b *Batcher) Submit(ctx context.Context, name halfmsg.Name, wait Wait) (halfmsg.Result, error) {
	group := b.submits
	if b.config.Trusted(name.Producer) {
		group = b.trusted
	}
	if wait == NoWait {
		submitted, err := group.Do(ctx, name)
		if err != nil {
			return halfmsg.Result{}, err
		}
		return submitted[0].Result, nil
	}
	results, err := b.submitAndWait(ctx, []halfmsg.Name{name}, wait, func() ([]halfmsg.Submitted, error) {
		return group.Do(ctx, name)
	})
	if err != nil {
		return halfmsg.Result{}, err
	}
	return results[0], nil
}

// SubmitAll submits messages of one producer, each named once, as a batch of their own, and waits for their outcomes as
// far as asked.
func (b *Batcher) SubmitAll(ctx context.Context, names []halfmsg.Name, wait Wait) ([]halfmsg.Result, error) {
	return b.submitAndWait(ctx, names, wait, func() ([]halfmsg.Submitted, error) {
		release, err := b.acquireBatch(ctx)
		if err != nil {
			return nil, err
		}
		defer release()
		ctx, cancel := detached(ctx, b.config.StoreTimeout)
		defer cancel()
		if b.config.Trusted(names[0].Producer) {
			return b.submitTrusted(ctx, names), nil
		}
		return b.submit(ctx, names), nil
	})
}

// submit makes messages due and hands on those that it could claim.
func (b *Batcher) submit(ctx context.Context, names []halfmsg.Name) []halfmsg.Submitted {
	return b.submitAs(ctx, names, b.config.Intake.Submit, b.config.ConfirmLease)
}

// submitTrusted stores Submits as verdicts and hands on the messages.
func (b *Batcher) submitTrusted(ctx context.Context, names []halfmsg.Name) []halfmsg.Submitted {
	return b.submitAs(ctx, names, b.config.Intake.SubmitTrusted, b.config.SendLease)
}

// submitAs runs in a goroutine of a group, where a panic would end the process. So all items of the batch are answered
// with the panic.
func (b *Batcher) submitAs(
	ctx context.Context, names []halfmsg.Name,
	store func(context.Context, []halfmsg.Name, time.Duration) []halfmsg.Submitted, lease time.Duration,
) (submitted []halfmsg.Submitted) {
	if failure := lifecycle.Recovered(func() {
		// Both times count from before the call, so the lease never seems longer than it is.
		at := time.Now()
		until := at.Add(lease)
		submitted = store(ctx, names, lease)
		var claims []halfmsg.Claim
		for i := range submitted {
			submitted[i].State = publicState(submitted[i].State)
			if claim := submitted[i].Claim; claim != nil {
				claim.SubmittedAt = at
				claims = append(slices.Grow(claims, len(submitted)-i), *claim)
			}
		}
		if len(claims) > 0 {
			b.config.Pipeline.Submitted(claims, until)
		}
	}); failure != nil {
		submitted = make([]halfmsg.Submitted, len(names))
		for i := range submitted {
			submitted[i].Err = failure
		}
	}
	return submitted
}

// publicState is a state as producers see it. An acknowledged message is done for producers: its marker is still there,
// which needs no action of theirs, and DeleteBusiness is called later.
func publicState(state halfmsg.State) halfmsg.State {
	if state == halfmsg.Acknowledged {
		return halfmsg.Done
	}
	return state
}
