package consumer

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// mostTaken is how many letters a round takes at most, and roundBytes about how many bytes of bodies: a round is in
	// memory. A first round of one letter grows, so that a look at a single letter takes no other.
	mostTaken, roundBytes, roundGrowth = 250, 16 << 20, 4
	// mostHeld is how many letters a walk holds at most: the broker keeps a note of each.
	mostHeld = 100_000
	// silence is how long no letter arrives before a round asks whether any is left.
	silence = 100 * time.Millisecond
)

var errTooMany = errors.New("too many dead letters for one look")

// takeRound takes some of the letters, the oldest first, by a consumer that it cancels before the first letter is
// visited: so a letter that is removed makes no room for another. By basic.get the time of a walk would grow with the
// square of the number of letters: a quorum queue keeps a consumer for each basic.get without an acknowledgement.
func (w *walk) takeRound(ctx context.Context, left int) (taken []amqp.Delivery, err error) {
	most := min(w.round, left)
	if err := w.ch.Qos(most, 0, false); err != nil {
		return nil, fmt.Errorf("take letters of queue %q: %w", w.config.Queue, err)
	}
	w.rounds++ // a quorum queue keeps a cancelled consumer, and its tag, until its letters are settled
	tag := fmt.Sprint("msghandler dead letters ", w.rounds)
	deliveries, err := w.ch.Consume(w.config.Queue, tag, false, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("take letters of queue %q: %w", w.config.Queue, err)
	}
	taken, bytes := make([]amqp.Delivery, 0, most), 0
	take := func(d amqp.Delivery) {
		taken, bytes = append(taken, d), bytes+len(d.Body)
	}
	w.receive(ctx, deliveries, most, take)
	if err := w.ch.Cancel(tag, false); err != nil {
		return nil, fmt.Errorf("end the look at queue %q: %w", w.config.Queue, err)
	}
	for d := range deliveries { // those that the broker sent before its answer
		take(d)
	}
	w.held += len(taken)
	w.round = min(w.round*roundGrowth, mostTaken, max(roundBytes*len(taken)/max(bytes, 1), 1))
	return taken, ctx.Err()
}

// receive takes deliveries until they are enough, or the queue is empty.
func (w *walk) receive(ctx context.Context, from <-chan amqp.Delivery, most int, take func(amqp.Delivery)) {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for got := 0; got < most; {
		select {
		case d, open := <-from:
			if !open {
				return
			}
			take(d)
			got++
		case <-quiet.C:
			if waiting, err := depth(w.ch, w.config.Queue); err != nil || waiting == 0 {
				return
			}
		case <-ctx.Done():
			return
		}
		quiet.Reset(silence)
	}
}
