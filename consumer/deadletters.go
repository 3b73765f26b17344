package consumer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/amqpconn"
)

// ErrNoLetter says that no dead letter has that key.
var ErrNoLetter = errors.New("no such dead letter")

// Letter is a dead letter.
type Letter struct {
	// Message is what was published, with Exchange and RoutingKey as it was published with them at first.
	*Message
	// Queue is where it was consumed.
	Queue string
	// Reason is why it is dead: its last failure, or the broker's reason, such as delivery_limit.
	Reason string
	// FirstFailedAt is when it failed first, as RFC 3339 has it; empty when it was the broker that gave it up.
	FirstFailedAt string
}

// name is what a letter is asked for by: its Message.Key, or PRODUCER/ where the message has no id, as for all such letters
// of that producer.
func (l *Letter) name() string { return l.Producer + "/" + l.ID }

// DeadLetters looks after a dead-letter queue: what a consumer put there, and what the broker did. Its methods connect,
// walk over the queue and leave what they do not remove; while one walks, others see less. RabbitMQ counts each look as
// a delivery, so let no dead-letter queue have a delivery limit.
type DeadLetters struct {
	config Config
}

// NewDeadLetters describes a dead-letter queue. It connects to nothing. URL and TLS are as in Config.
func NewDeadLetters(url string, tls *tls.Config, queue string) (*DeadLetters, error) {
	config, err := Config{URL: url, TLS: tls, Queue: queue}.withDefaults()
	if err != nil {
		return nil, err
	}
	return &DeadLetters{config}, nil
}

// List gives the oldest letters.
func (d *DeadLetters) List(ctx context.Context, limit int) ([]Letter, error) {
	var letters []Letter
	err := d.walk(ctx, func(l Letter, _ *amqp.Delivery) (walked, error) {
		if letters = append(letters, l); len(letters) >= limit {
			return walked{last: true}, nil
		}
		return walked{}, nil
	})
	return letters, err
}

// Show gives the letter with a Message.Key, or ErrNoLetter. A letter without an id is asked for by PRODUCER/, here and in
// Replay and Discard.
func (d *DeadLetters) Show(ctx context.Context, key string) (Letter, error) {
	var found *Letter
	err := d.walk(ctx, func(l Letter, _ *amqp.Delivery) (walked, error) {
		if l.name() == key {
			found = &l
		}
		return walked{last: found != nil}, nil
	})
	switch {
	case err != nil:
		return Letter{}, err
	case found == nil:
		return Letter{}, fmt.Errorf("%s: %w", key, ErrNoLetter)
	}
	return *found, nil
}

// Replay publishes letters once more, with the exchange and key that they had at first, as if they had never failed; all
// of them when no keys are given. A letter goes when the broker has acknowledged its copy and routed it. A replay that
// dies in between, or is repeated, makes copies of what may have had its effect, which the inbox drops: they have a
// msghandler-attempt above 1. It returns how many were replayed; those that could not be are in the error, and stay.
func (d *DeadLetters) Replay(ctx context.Context, keys ...string) (replayed int, err error) {
	return d.replay(ctx, math.MaxInt, keys)
}

// replay is Replay for at most limit letters that have one of the keys, or of all where there are no keys.
func (d *DeadLetters) replay(ctx context.Context, limit int, keys []string) (replayed int, err error) {
	to := poster{connect: func(ctx context.Context) (*amqpconn.Conn, error) { return d.config.dialAny(ctx, "replays") }}
	defer to.close()
	var failed []error
	err = d.walk(ctx, func(l Letter, delivery *amqp.Delivery) (walked, error) {
		if len(keys) > 0 && !slices.Contains(keys, l.name()) {
			return walked{}, nil
		}
		limit--
		if err := to.post(ctx, l.Exchange, l.RoutingKey, replay(l, delivery)); err != nil {
			failed = append(failed, fmt.Errorf("replay %s: %w", l.name(), err))
			return walked{last: limit == 0}, ctx.Err()
		}
		replayed++
		return walked{remove: true, last: limit == 0}, nil
	})
	return replayed, errors.Join(append(failed, err)...)
}

// Discard removes the letters with these keys for good, and returns how many they were.
func (d *DeadLetters) Discard(ctx context.Context, keys ...string) (discarded int, err error) {
	err = d.walk(ctx, func(l Letter, _ *amqp.Delivery) (walked, error) {
		if !slices.Contains(keys, l.name()) {
			return walked{}, nil
		}
		discarded++
		return walked{remove: true}, nil
	})
	return discarded, err
}

// walked is what a walk does after a letter.
type walked struct{ remove, last bool }

// walk visits the letters that are there now, the oldest first. Closing the channel gives back what was not removed.
func (d *DeadLetters) walk(ctx context.Context, visit func(Letter, *amqp.Delivery) (walked, error)) error {
	conn, err := d.config.dialAny(ctx, "dead letters")
	if err != nil {
		return err
	}
	defer conn.CloseWithin(closeTimeout)
	defer context.AfterFunc(ctx, conn.HangUp)()
	ch, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	queue, err := ch.QueueDeclarePassive(d.config.Queue, true, false, false, false, nil)
	if err != nil {
		return fmt.Errorf("look at queue %q: %w", d.config.Queue, err)
	}
	for range queue.Messages {
		delivery, found, err := ch.Get(d.config.Queue, false)
		if err != nil {
			return fmt.Errorf("get from queue %q: %w", d.config.Queue, err)
		}
		if !found || ctx.Err() != nil {
			return ctx.Err()
		}
		do, err := visit(newLetter(&delivery), &delivery)
		if err == nil && do.remove {
			err = delivery.Ack(false)
		}
		if err != nil || do.last {
			return err
		}
	}
	return nil
}

func newLetter(d *amqp.Delivery) Letter {
	l := Letter{Message: newMessage(d)}
	text := func(name string) string {
		value, _ := d.Headers[name].(string)
		return value
	}
	if l.Queue = text(HeaderQueue); l.Queue != "" {
		l.Exchange, l.RoutingKey = text(HeaderExchange), text(HeaderRoutingKey)
	}
	l.Reason, l.FirstFailedAt = text(HeaderDeadReason), text(HeaderFirstFailedAt)
	deaths, _ := d.Headers["x-death"].([]any)
	if len(deaths) == 0 {
		return l
	}
	// The broker gave it up. It notes the latest first.
	if latest, ok := deaths[0].(amqp.Table); ok {
		l.Reason = or(l.Reason, fmt.Sprint(latest["reason"]))
	}
	if first, ok := deaths[len(deaths)-1].(amqp.Table); ok && l.Queue == "" {
		l.Queue, _ = first["queue"].(string)
		l.Exchange, _ = first["exchange"].(string)
		if keys, _ := first["routing-keys"].([]any); len(keys) > 0 {
			l.RoutingKey, _ = keys[0].(string)
		}
	}
	return l
}

// replay is a letter as it is published once more: flagged as a copy, and with all its retries before it.
func replay(l Letter, d *amqp.Delivery) amqp.Publishing {
	p := republishing(d)
	for _, name := range []string{
		HeaderRetries, HeaderFirstCause, HeaderFirstFailedAt, HeaderDeadReason, HeaderQueue, HeaderExchange, HeaderRoutingKey,
	} {
		delete(p.Headers, name)
	}
	p.Headers["msghandler-attempt"] = int64(l.Attempt) + 1
	return p
}
