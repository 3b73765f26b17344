package random

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/msghandler/msghandler/internal/confirmloop"
	"github.com/msghandler/msghandler/internal/delivery"
	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/sendloop"
)

const (
	lease = 10 * time.Second
	// deleteTries is how often the deletion of a marker is tried.
	deleteTries = 5
)

var (
	errAway   = errors.New("out of reach")
	errFailed = fmt.Errorf("INTERNAL: %w", halfmsg.ErrCallFailed)
)

// store is the whole store.
type store interface {
	halfmsg.Intake
	halfmsg.ConfirmStore
	halfmsg.SendStore
	halfmsg.Inspector
}

// effect is something an instance is about to do, waiting at the gate.
type effect struct {
	owner  *instance
	what   string
	answer chan int
}

// instance is one coordinator: both loops on a store whose effects stop at the gate. An instance is the ConfirmStore,
// SendStore, Callbacks and Publisher of its loops.
type instance struct {
	w     *world
	index int
	store store
	// dead says that no act of the instance has an effect any more.
	dead                          bool
	confirming, sending, deleting bool
	confirmer                     *confirmloop.Confirmer
	sender                        *sendloop.Sender
}

func (w *world) start(index int) *instance {
	n := &instance{w: w, index: index, store: w.stores[index]}
	var publisher halfmsg.Publisher = n
	if w.defect.publisher != nil {
		publisher = w.defect.publisher(n)
	}
	quiet := slog.New(slog.DiscardHandler)
	pipeline := &delivery.Pipeline{}
	sending := sendloop.Config{
		Pipeline: pipeline, DeleteAfterAck: w.afterAck,
		Store: n, Brokers: map[string]sendloop.Broker{"": {Publisher: publisher}},
		Backoff: backoff.Steps{time.Second, time.Second}, Batch: 3, Lease: lease,
		Logger:   quiet,
		Parallel: 4, Queue: 5000, Margin: lease / 3,
	}
	when := confirmloop.BeforePublish
	if w.afterAck {
		when = confirmloop.AfterAck
	}
	n.sender = sendloop.New(sending)
	n.confirmer = confirmloop.New(confirmloop.Config{
		Store: n, Callbacks: n, Pipeline: pipeline, Backoff: backoff.Steps{time.Second}, Attempts: 1, Batch: 2,
		Lease: lease, SendLease: lease, Margin: lease / 3, DeleteWhen: when, DeleteTimeout: 3 * time.Second,
		CallsPerProducer: 4,
		QueuePerProducer: 1, Logger: quiet,
	})
	pipeline.Confirm, pipeline.Send = n.confirmer, n.sender
	return n
}

// die ends an instance between two effects, and starts another in its place. Claims and the memory of the instance
// are lost.
func (n *instance) die() {
	n.w.mu.Lock()
	n.dead = true
	for _, e := range n.w.parked {
		if e.owner == n {
			e.answer <- 0
		}
	}
	n.w.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = n.confirmer.Close(ctx)
	_ = n.sender.Close(ctx)
	n.w.instances[n.index] = n.w.start(n.index)
}

// gate waits until the sequence lets an effect go on, and returns the answer of the effect. The result is false when
// the effect must not happen: the instance is dead, or the context has ended. On return, w.mu is held.
func (n *instance) gate(ctx context.Context, what string) (answer int, goOn bool) {
	e := &effect{owner: n, what: what, answer: make(chan int, 1)}
	n.w.mu.Lock()
	if n.dead {
		return 0, false
	}
	n.w.parked = append(n.w.parked, e)
	n.w.mu.Unlock()
	ended := false
	select {
	case answer = <-e.answer:
	case <-ctx.Done():
		ended = true
	}
	n.w.mu.Lock()
	n.w.unpark(e)
	return answer, !ended && !n.dead
}

func listing(names []halfmsg.Name) string {
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = name.String()
	}
	return strings.Join(parts, " ")
}

// PendingProducers implements halfmsg.ConfirmStore.
func (n *instance) PendingProducers(ctx context.Context) ([]string, error) {
	return n.store.PendingProducers(ctx)
}

// ClaimPending implements halfmsg.ConfirmStore.
func (n *instance) ClaimPending(
	ctx context.Context, quota map[string]int, lease time.Duration, without ...halfmsg.LeftOut,
) ([]halfmsg.Claim, error) {
	return n.claim(halfmsg.Pending, lease, func() ([]halfmsg.Claim, error) {
		return n.store.ClaimPending(ctx, quota, lease, without...)
	})
}

// ClaimSendable implements halfmsg.SendStore.
func (n *instance) ClaimSendable(
	ctx context.Context, limit int, lease time.Duration, brokers ...string,
) ([]halfmsg.Claim, error) {
	return n.claim(halfmsg.Sendable, lease, func() ([]halfmsg.Claim, error) {
		return n.store.ClaimSendable(ctx, limit, lease, brokers...)
	})
}

// ClaimAcknowledged implements halfmsg.ConfirmStore.
func (n *instance) ClaimAcknowledged(
	ctx context.Context, limit int, lease time.Duration, without ...halfmsg.LeftOut,
) ([]halfmsg.Claim, error) {
	return n.claim(halfmsg.Acknowledged, lease, func() ([]halfmsg.Claim, error) {
		return n.store.ClaimAcknowledged(ctx, limit, lease, without...)
	})
}

// claim asks the store for due messages. Where no message is in that state claim does not ask: compare has seen an
// empty index, and scripts take the most time here.
func (n *instance) claim(
	state halfmsg.State, lease time.Duration, ask func() ([]halfmsg.Claim, error),
) ([]halfmsg.Claim, error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.dead {
		return nil, halfmsg.ErrUnavailable
	}
	if !n.w.model.has(state) {
		return nil, nil
	}
	claims, err := ask()
	if err != nil {
		n.w.model.failf("claiming: %v", err)
	}
	for i := range claims {
		it := n.w.model.items[claims[i].Name]
		if it.state == halfmsg.Sendable && it.token != "" {
			it.copies++ // the former owner is gone, and may have published the message
		}
		n.w.model.claimed(&claims[i], lease.Milliseconds())
	}
	return claims, err
}

// Settle implements halfmsg.Settler. Answers: made, made but the answer is lost, out of reach.
func (n *instance) Settle(ctx context.Context, settlements []halfmsg.Settlement) []halfmsg.Result {
	if len(settlements) == 0 {
		return nil
	}
	what := "settle"
	for i := range settlements {
		what += fmt.Sprintf(" %s %s", settlements[i].Name, settlements[i].Event)
	}
	answer, goOn := n.gate(ctx, what)
	defer n.w.mu.Unlock()
	failed := make([]halfmsg.Result, len(settlements))
	for i := range failed {
		failed[i].Err = halfmsg.ErrUncertain
	}
	if answer%4 == 3 || !goOn {
		return failed
	}
	results := n.store.Settle(context.WithoutCancel(ctx), settlements)
	for i := range settlements {
		n.w.model.settled(&settlements[i], results[i])
	}
	if answer%4 == 2 {
		return failed
	}
	return results
}

// Confirm implements halfmsg.Callbacks. Answers: the truth, all UNKNOWN, out of reach, garbage, half of the truth.
func (n *instance) Confirm(
	ctx context.Context, target halfmsg.Target, ids []string, final bool,
) (map[string]halfmsg.Verdict, error) {
	answer, goOn := n.gate(ctx, fmt.Sprintf("confirm %s %v %v", target.Producer, ids, final))
	defer n.w.mu.Unlock()
	if !goOn {
		return nil, errAway
	}
	verdicts := map[string]halfmsg.Verdict{}
	switch answer % 6 {
	case 2:
		return verdicts, nil
	case 3:
		if answer/6%2 == 1 {
			return nil, errFailed
		}
		return nil, errAway
	case 4:
		for _, id := range ids {
			verdicts[id] = halfmsg.Verdict(9)
		}
		return verdicts, nil
	case 5:
		ids = ids[:1]
	}
	for _, id := range ids {
		verdicts[id] = n.w.model.items[halfmsg.Name{Producer: target.Producer, ID: id}].verdict(final)
	}
	return verdicts, nil
}

// verdict is an honest producer's answer. The final Confirm call plants a tombstone, after which the business fails.
func (it *item) verdict(final bool) halfmsg.Verdict {
	if it.truth == running && final {
		it.truth = rolledBack
	}
	switch it.truth {
	case committed:
		it.saidCommitted = true
		return halfmsg.VerdictCommitted
	case rolledBack:
		it.saidRolledBack = true
		return halfmsg.VerdictRolledBack
	default:
		return halfmsg.VerdictUnknown
	}
}

// DeleteBusiness implements halfmsg.Callbacks. Answers: done, out of reach.
func (n *instance) DeleteBusiness(ctx context.Context, target halfmsg.Target, ids []string) error {
	n.w.mu.Lock()
	for _, id := range ids {
		if !n.dead {
			n.w.model.deleted(halfmsg.Name{Producer: target.Producer, ID: id}, n.w.afterAck)
		}
	}
	n.w.mu.Unlock()
	answer, goOn := n.gate(ctx, fmt.Sprintf("delete %s %v", target.Producer, ids))
	defer n.w.mu.Unlock()
	if !goOn || answer%3 == 2 {
		n.w.model.notDeleted(target.Producer, ids)
		return errAway
	}
	for _, id := range ids {
		n.w.model.items[halfmsg.Name{Producer: target.Producer, ID: id}].markerGone = true
	}
	return nil
}

// Publish implements halfmsg.Publisher. The answer has two bits for each message, and one more for an answer in two
// groups.
func (n *instance) Publish(_ context.Context, batch []halfmsg.Publishing, answered answered) {
	names := make([]halfmsg.Name, len(batch))
	n.w.mu.Lock()
	for i := range batch {
		names[i] = batch[i].Name
		if !n.dead {
			n.w.model.published(&batch[i])
		}
	}
	n.w.mu.Unlock()
	answer, goOn := n.gate(context.Background(), "publish "+listing(names))
	results := n.outcomes(batch, answer, goOn)
	n.w.mu.Unlock()
	first := len(batch)
	if answer>>(2*len(batch))&1 == 1 {
		first = len(batch) / 2
	}
	places := make([]int, len(batch))
	for i := range places {
		places[i] = i
	}
	answered(places[:first], results[:first])
	answered(places[first:], results[first:])
}

// outcomes are the broker's answers for a batch. n.w.mu is held.
func (n *instance) outcomes(batch []halfmsg.Publishing, answer int, goOn bool) []halfmsg.PublishResult {
	results := make([]halfmsg.PublishResult, len(batch))
	for i := range batch {
		results[i].Outcome = halfmsg.Acked + halfmsg.Outcome(answer>>(2*i)&3)
		if !goOn {
			results[i].Outcome = halfmsg.Unsure
		}
		it := n.w.model.items[batch[i].Name]
		switch results[i].Outcome {
		case halfmsg.Acked:
			it.acked = true
		case halfmsg.Unsent:
			delete(it.attempts, batch[i].Attempt)
			results[i].Cause = errAway
		default:
			results[i].Cause = errors.New("no route")
		}
	}
	return results
}

// Ready implements halfmsg.Publisher.
func (n *instance) Ready() error {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.w.brokerAway || n.dead {
		return errAway
	}
	return nil
}
