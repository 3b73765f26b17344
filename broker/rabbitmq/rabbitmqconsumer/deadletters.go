package rabbitmqconsumer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// DeadLetters manages a dead-letter queue: letters of a consumer, and letters of the broker. Its methods connect,
// take the letters in turn and return the letters that are not removed; while a method runs, others see fewer
// letters. A look takes a time in proportion to the number of letters, and looks at 100,000 letters at most.
//
// Looking loses no letter. RabbitMQ before 4.3 counts each return of a letter to a quorum queue, and drops a letter
// at the queue's delivery limit. A client cannot see the limit of a policy. Therefore, before 4.3, a letter that has
// been returned once is replaced by a copy of itself, at the queue's end. The user then needs write permission on the
// default exchange; without this permission each look is refused before taking a letter. Every version counts a
// client that is killed during a look. Declare creates queues without a limit. Give no dead-letter queue a policy
// with a delivery limit below 2.
type DeadLetters struct {
	config Config
}

// NewDeadLetters describes a dead-letter queue. The first method call connects. URL and TLS are as in Config.
func NewDeadLetters(url string, tls *tls.Config, queue string) (*DeadLetters, error) {
	config, err := Config{URL: url, TLS: tls, Queue: queue}.withDefaults()
	if err != nil {
		return nil, err
	}
	return &DeadLetters{config}, nil
}

// List gives the oldest letters.
func (d *DeadLetters) List(ctx context.Context, limit int) ([]consumer.Letter, error) {
	return d.ListSelected(ctx, consumer.Selection{Limit: max(limit, 1)})
}

// Show gives the letter with a Message.Key, or ErrNoLetter. A letter without an id is asked for by PRODUCER/, here and
// in Replay and Discard.
func (d *DeadLetters) Show(ctx context.Context, key string) (consumer.Letter, error) {
	var found *consumer.Letter
	err := d.walk(ctx, func(l consumer.Letter, _ *amqp.Delivery) (walked, error) {
		if l.Name() == key {
			found = &l
		}
		return walked{last: found != nil}, nil
	})
	switch {
	case err != nil:
		return consumer.Letter{}, err
	case found == nil:
		return consumer.Letter{}, fmt.Errorf("%s: %w", key, consumer.ErrNoLetter)
	}
	return *found, nil
}

// Replay publishes letters again, with their first exchange and routing key, as if they had never failed; all letters
// when no keys are given. A letter is removed when the broker has acknowledged and routed its copy. An interrupted or
// repeated replay may publish further copies of a handled message, with a msghandler-attempt above 1; the inbox drops
// such copies. Replay returns the number of replayed letters; the others stay, and the error names them.
func (d *DeadLetters) Replay(ctx context.Context, may consumer.Rule, keys ...string) (replayed int, err error) {
	return d.ReplaySelected(ctx, consumer.Selection{Match: deadletter.WithKey[*consumer.Letter](keys), MayReplay: may})
}

// ReplaySelected is Replay for a selection, whether or not the replay of each letter succeeds.
func (d *DeadLetters) ReplaySelected(ctx context.Context, s consumer.Selection) (replayed int, err error) {
	if s.MayReplay == nil {
		return 0, consumer.ErrNoRule
	}
	s = s.WithDefaults()
	to := poster{connect: func(ctx context.Context) (*amqpconn.Conn, error) { return d.config.dialAny(ctx, "replays") }}
	defer to.close()
	var failed []error
	left := s.Limit
	err = d.walk(ctx, func(l consumer.Letter, delivery *amqp.Delivery) (walked, error) {
		if left <= 0 || !s.Match(&l) {
			return walked{last: left <= 0}, nil
		}
		left--
		err := s.MayReplay(&l)
		if err == nil {
			err = to.post(ctx, l.Exchange, l.RoutingKey, replay(l, delivery))
		}
		if err != nil {
			failed = append(failed, fmt.Errorf("replay %s: %w", l.Name(), err))
			return walked{last: left == 0}, ctx.Err()
		}
		replayed++
		s.Changed(&l)
		return walked{remove: true, last: left == 0}, nil
	})
	return replayed, errors.Join(append(failed, err)...)
}

// Discard removes the letters with these keys for good, and returns how many they were.
func (d *DeadLetters) Discard(ctx context.Context, keys ...string) (discarded int, err error) {
	return d.DiscardOldest(ctx, math.MaxInt, keys...)
}

// DiscardSelected is Discard for a selection.
func (d *DeadLetters) DiscardSelected(ctx context.Context, s consumer.Selection) (discarded int, err error) {
	s = s.WithDefaults()
	err = d.walk(ctx, func(l consumer.Letter, _ *amqp.Delivery) (walked, error) {
		if discarded >= s.Limit || !s.Match(&l) {
			return walked{last: discarded >= s.Limit}, nil
		}
		discarded++
		s.Changed(&l)
		return walked{remove: true, last: discarded == s.Limit}, nil
	})
	return discarded, err
}

// letter is a dead letter, with how many of its deliveries count against the queue's delivery limit.
type letter struct {
	consumer.Letter
	returns int
}

func newLetter(d *amqp.Delivery) letter {
	m, returns := newMessage(d)
	l := letter{Letter: consumer.Letter{Message: *m}, returns: returns}
	text := func(name string) string {
		value, _ := d.Headers[name].(string)
		return value
	}
	l.Queue = text(consumer.HeaderQueue)
	if _, known := d.Headers[consumer.HeaderRoutingKey]; known {
		l.Exchange, l.RoutingKey = text(consumer.HeaderExchange), text(consumer.HeaderRoutingKey)
	}
	l.Reason, l.FirstFailedAt = text(consumer.HeaderDeadReason), text(consumer.HeaderFirstFailedAt)
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) == 0 {
		return l
	}
	// The broker dead-lettered the message. Its latest note comes first.
	if latest, ok := deaths[0].(amqp.Table); ok {
		l.Reason = cmp.Or(l.Reason, fmt.Sprint(latest["reason"]))
		at, _ := latest["time"].(time.Time)
		l.DeadAt = deadletter.Time(at)
	}
	if l.Queue == "" {
		l.setOrigin(firstFailure(deaths))
	}
	return l
}

// firstFailure is the oldest entry of x-death, which is not a wait: a message that waited in a delay queue and failed
// later is replayed without another wait.
func firstFailure(deaths []any) amqp.Table {
	oldest, _ := deaths[len(deaths)-1].(amqp.Table)
	for _, death := range slices.Backward(deaths) {
		if entry, ok := death.(amqp.Table); ok && entry["reason"] != "expired" {
			return entry
		}
	}
	return oldest
}

// setOrigin reads where the message was consumed from an entry of x-death.
func (l *letter) setOrigin(death amqp.Table) {
	l.Queue, _ = death["queue"].(string)
	l.Exchange, _ = death["exchange"].(string)
	if keys, _ := death["routing-keys"].([]any); len(keys) > 0 {
		l.RoutingKey, _ = keys[0].(string)
	}
}

// replay returns the publishing of a letter: marked as a copy, without the headers of its failures.
func replay(l consumer.Letter, d *amqp.Delivery) amqp.Publishing {
	p := republishing(d)
	maps.DeleteFunc(p.Headers, func(name string, _ any) bool { return deadletter.IsFailureHeader(name) })
	p.Headers["msghandler-attempt"] = deadletter.Grown(l.Attempt)
	return p
}

// Visit shows the letters without their bodies to a function, the oldest first, until the function returns false. Up to
// 250 letters are in memory with their bodies.
func (d *DeadLetters) Visit(ctx context.Context, visit func(*consumer.Letter) bool) error {
	return d.walk(ctx, func(l consumer.Letter, _ *amqp.Delivery) (walked, error) {
		l.Body = nil
		return walked{last: !visit(&l)}, nil
	})
}

// ListSelected gives the letters of a selection, the oldest first.
func (d *DeadLetters) ListSelected(ctx context.Context, s consumer.Selection) (letters []consumer.Letter, err error) {
	s = s.WithDefaults()
	err = d.walk(ctx, func(l consumer.Letter, _ *amqp.Delivery) (walked, error) {
		if len(letters) < s.Limit && s.Match(&l) {
			letters = append(letters, l)
		}
		return walked{last: len(letters) >= s.Limit}, nil
	})
	return letters, err
}

// Oldest gives the oldest letter without its body, or ErrNoLetter. Oldest takes one letter of a classic queue and gives
// it back to its place. Of a quorum queue, Oldest takes no letter, and returns ErrLookReorders.
func (d *DeadLetters) Oldest(ctx context.Context) (oldest consumer.Letter, err error) {
	err = consumer.ErrNoLetter
	failed := d.walkAllowed(ctx, func(w *walk, _ context.Context) error {
		if w.limit.Possible {
			return fmt.Errorf("queue %q: %w", w.config.Queue, consumer.ErrLookReorders)
		}
		return nil
	}, func(l consumer.Letter, _ *amqp.Delivery) (walked, error) {
		l.Body = nil
		oldest, err = l, nil
		return walked{last: true}, nil
	})
	if failed != nil {
		return consumer.Letter{}, failed
	}
	return oldest, err
}
