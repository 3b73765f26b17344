package rabbitmqconsumer

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"maps"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/ground/deadletter"
)

// NewDeadLetters describes a dead-letter queue: letters of a consumer, and letters of the broker. The first method call
// connects. URL and TLS are as in Config. The methods take the letters in turn and return the letters that are not
// removed; while a method runs, others see fewer letters. A look takes a time in proportion to the number of letters,
// holds up to 250 letters with their bodies in memory, and looks at 100,000 letters at most. A letter is replayed when
// the broker has acknowledged and routed its copy.
//
// Looking loses no letter. RabbitMQ before 4.3 counts each return of a letter to a quorum queue, and drops a letter
// at the queue's delivery limit. A client cannot see the limit of a policy. Therefore, before 4.3, a letter that has
// been returned once is replaced by a copy of itself, at the queue's end. The user then needs write permission on the
// default exchange; without this permission each look is refused before taking a letter. Every version counts a
// client that is killed during a look. Declare creates queues without a limit. Give no dead-letter queue a policy
// with a delivery limit below 2.
//
// Oldest takes one letter of a classic queue and gives it back to its place. Of a quorum queue it takes no letter.
func NewDeadLetters(url string, tls *tls.Config, queue string) (*consumer.DeadLetters, error) {
	config, err := Config{URL: url, TLS: tls, Queue: queue}.withDefaults()
	if err != nil {
		return nil, err
	}
	return consumer.NewDeadLetters(&deadLetterQueue{config}), nil
}

// deadLetterQueue is the queue of DeadLetters.
type deadLetterQueue struct{ config Config }

// Depth is the number of letters that no client holds.
func (q *deadLetterQueue) Depth(ctx context.Context) (int, error) {
	conn, err := q.config.dialAny(ctx, "dead letters")
	if err != nil {
		return 0, err
	}
	defer conn.CloseWithin(closeTimeout)
	defer context.AfterFunc(ctx, conn.HangUp)()
	ch, err := conn.Channel()
	if err != nil {
		return 0, fmt.Errorf("open a channel: %w", err)
	}
	return depth(ch, q.config.Queue)
}

// Count takes no letter.
func (q *deadLetterQueue) Count(ctx context.Context) (int, error) { return q.Depth(ctx) }

// foundLetter is a letter that a walk holds.
type foundLetter struct {
	letter
	walk     *walk
	delivery *amqp.Delivery
	removed  bool
}

func (f *foundLetter) Content() *consumer.Letter { return &f.Letter }

func (f *foundLetter) Publish(ctx context.Context) error {
	return f.walk.replays.post(ctx, f.Exchange, f.RoutingKey, replay(f.Letter, f.delivery))
}

func (f *foundLetter) Remove(context.Context, string) error {
	f.removed = true
	f.walk.removed++
	return f.walk.remove(f.delivery)
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
