package rabbitmqconsumer

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
	// stuck is how long a queue may hold letters and deliver none.
	stuck = 5 * time.Second
)

// errStuck: a look would wait for as long as the other consumer is there.
var errStuck = errors.New("the queue holds letters and delivers none: " +
	"does another consumer have the queue for itself (x-single-active-consumer, or a higher priority)? Stop it first")

var errTooMany = errors.New("too many dead letters for one look")

// takeRound takes the letters of a round, the oldest first.
func (w *walk) takeRound(ctx context.Context, left int) ([]amqp.Delivery, error) {
	most := min(w.round, left)
	taken, err := w.consume(most, func(from <-chan amqp.Delivery) ([]amqp.Delivery, error) {
		return w.receive(ctx, from, most)
	})
	bytes := 1
	for i := range taken {
		bytes += len(taken[i].Body)
	}
	w.round = min(w.round*roundGrowth, mostTaken, max(roundBytes*len(taken)/bytes, 1))
	return taken, errors.Join(err, ctx.Err())
}

// consume takes at most some letters by a consumer that it cancels before the first letter is visited: so a letter that
// is removed makes no room for another. By basic.get the time of a walk would grow with the square of the number of
// letters: a quorum queue keeps a consumer for each basic.get without an acknowledgement.
func (w *walk) consume(
	most int, receive func(<-chan amqp.Delivery) ([]amqp.Delivery, error),
) ([]amqp.Delivery, error) {
	if err := w.ch.Qos(most, 0, false); err != nil {
		return nil, fmt.Errorf("take letters of queue %q: %w", w.config.Queue, err)
	}
	w.rounds++ // a quorum queue keeps a cancelled consumer, and its tag, until its letters are settled
	tag := fmt.Sprint("msghandler dead letters ", w.rounds)
	deliveries, err := w.ch.Consume(w.config.Queue, tag, false, false, false, false, nil)
	if err != nil {
		return nil, fmt.Errorf("take letters of queue %q: %w", w.config.Queue, err)
	}
	taken, failed := receive(deliveries)
	if err := w.ch.Cancel(tag, false); err != nil {
		return nil, fmt.Errorf("end the look at queue %q: %w", w.config.Queue, err)
	}
	for d := range deliveries { // those that the broker sent before its answer
		taken = append(taken, d)
	}
	w.held += len(taken)
	if failed != nil {
		return taken, fmt.Errorf("take letters of queue %q: %w", w.config.Queue, failed)
	}
	return taken, nil
}

// receive takes deliveries until they are enough, or the queue is empty.
func (w *walk) receive(
	ctx context.Context, from <-chan amqp.Delivery, most int,
) (taken []amqp.Delivery, err error) {
	quiet := time.NewTimer(silence)
	defer quiet.Stop()
	for latest := time.Now(); len(taken) < most; {
		select {
		case d, open := <-from:
			if !open {
				return taken, errCancelled
			}
			taken, latest = append(taken, d), time.Now()
		case <-quiet.C:
			waiting, err := depth(w.ch, w.config.Queue)
			switch {
			case err != nil || waiting == 0:
				return taken, err
			case time.Since(latest) > stuck:
				return taken, errStuck
			}
		case <-ctx.Done():
			return taken, nil
		}
		quiet.Reset(silence)
	}
	return taken, nil
}

// flush waits until the queue has all acknowledgements of the channel. It begins and ends a consumer twice: the queue
// answers in order, so the first time it has what was sent, and the channel then sends what it kept. A letter that
// arrives meanwhile returns with the others.
func (w *walk) flush() {
	for range 2 {
		taken, err := w.consume(1, func(<-chan amqp.Delivery) ([]amqp.Delivery, error) { return nil, nil })
		if err != nil {
			return
		}
		var worn []*amqp.Delivery
		for i := range taken {
			if w.wornOut(newLetter(&taken[i]).returns) {
				worn = append(worn, &taken[i])
			}
		}
		_ = w.renew(context.Background(), worn) // on a failure the letter returns once more
	}
}
