package rabbitmqconsumer

import (
	"context"
	"fmt"
	"slices"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// Count counts the letters with these keys, as Discard would remove them. Without keys Count asks the broker for the
// length of the queue, and takes no letter.
func (d *DeadLetters) Count(ctx context.Context, keys ...string) (count int, err error) {
	if len(keys) == 0 {
		return d.Depth(ctx)
	}
	err = d.Visit(ctx, func(l *consumer.Letter) bool {
		if slices.Contains(keys, l.Name()) {
			count++
		}
		return true
	})
	return count, err
}

// Depth asks the broker for the number of letters that no client holds, and takes no letter.
func (d *DeadLetters) Depth(ctx context.Context) (int, error) {
	conn, err := d.config.dialAny(ctx, "dead letters")
	if err != nil {
		return 0, err
	}
	defer conn.CloseWithin(closeTimeout)
	defer context.AfterFunc(ctx, conn.HangUp)()
	ch, err := conn.Channel()
	if err != nil {
		return 0, fmt.Errorf("open a channel: %w", err)
	}
	return depth(ch, d.config.Queue)
}

// DiscardOldest is Discard for at most limit letters, the oldest first. A limit below 0 is an error.
func (d *DeadLetters) DiscardOldest(ctx context.Context, limit int, keys ...string) (discarded int, err error) {
	if limit <= 0 {
		return 0, deadletter.CheckLimit(limit)
	}
	if len(keys) == 0 {
		return 0, nil
	}
	return d.DiscardSelected(ctx, consumer.Selection{Limit: limit, Match: deadletter.WithKey[*consumer.Letter](keys)})
}
