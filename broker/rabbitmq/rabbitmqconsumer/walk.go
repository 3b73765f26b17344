package rabbitmqconsumer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/consumer"
)

const (
	// returnTimeout bounds the wait until the queue has its letters again, returnTime is added for each letter, and
	// returnPoll is the interval of the checks.
	returnTimeout = 3 * time.Second
	returnTime    = 100 * time.Microsecond
	returnPoll    = 10 * time.Millisecond
)

// maxReturns is how often a letter is returned before a copy replaces it, if returns count against a delivery limit.
// A client cannot see the limit of a policy, so a single return is the most that loses nothing at any limit above 0.
const maxReturns = 1

// walk is a pass over a dead-letter queue.
type walk struct {
	config Config
	conn   *amqpconn.Conn
	ch     *amqp.Channel
	// scan says which letters visit gets.
	scan  consumer.Scan
	visit func(consumer.FoundLetter) (last bool, err error)
	// limit is the queue's delivery limit; counted is set if the broker counts returns of letters.
	limit   amqpconn.Limit
	counted bool
	// copies publishes the copies of letters that were returned too often, and replays those to their first destination.
	copies, replays poster
	// letters is the number of letters at the start, held the taken and unsettled ones, and removed the removed ones.
	letters, held, removed int
	// acked is set once a letter was removed.
	acked bool
	// round is how many letters the next round takes, and rounds how many there were.
	round, rounds int
}

// Scan returns the letters that are not removed. At the end of the context, Scan still returns them: the broker counts
// a letter whose connection is lost.
func (q *deadLetterQueue) Scan(
	ctx context.Context, s consumer.Scan, visit func(consumer.FoundLetter) (last bool, err error),
) error {
	conn, err := q.config.dialAny(ctx, "dead letters")
	if err != nil {
		return err
	}
	defer conn.CloseWithin(closeTimeout)
	defer context.AfterFunc(ctx, func() { conn.Guard(closeTimeout) })()
	w := &walk{config: q.config, conn: conn, round: 1, scan: s, visit: visit}
	w.copies.connect = func(ctx context.Context) (*amqpconn.Conn, error) {
		return q.config.dialAny(ctx, "dead letters' copies")
	}
	defer w.copies.close()
	w.replays.connect = func(ctx context.Context) (*amqpconn.Conn, error) { return q.config.dialAny(ctx, "replays") }
	defer w.replays.close()
	if err := w.open(); err != nil {
		return err
	}
	if err := w.mayTake(ctx); err != nil {
		return err
	}
	defer w.giveBack()
	for left := w.letters; left > 0; {
		taken, err := w.takeRound(ctx, left)
		left -= len(taken)
		if last, visitErr := w.visitRound(ctx, taken); last || visitErr != nil {
			return visitErr
		}
		switch {
		case err != nil:
			return err
		case len(taken) == 0: // other clients have taken the rest
			return nil
		case w.held >= mostHeld && left > 0:
			return fmt.Errorf("look at queue %q: %w: the oldest %d of %d were looked at; "+
				"replay or discard some of them first", w.config.Queue, errTooMany, w.held, w.letters)
		}
	}
	return nil
}

// visitRound visits the letters of a round, until the last one. Letters behind it are not visited, and return like
// visited ones. Letters that must not be returned are replaced at the end, also after the end of the context.
func (w *walk) visitRound(ctx context.Context, taken []amqp.Delivery) (last bool, err error) {
	var worn []*amqp.Delivery
	for i := range taken {
		l := &foundLetter{letter: newLetter(&taken[i]), walk: w, delivery: &taken[i]}
		l.Letter = l.Bounded()
		if err == nil {
			err = ctx.Err()
		}
		if err == nil && !last && w.scan.Match(&l.Letter) {
			last, err = w.visit(l)
		}
		if !l.removed && w.wornOut(l.returns) {
			worn = append(worn, &taken[i])
		}
	}
	return last, errors.Join(err, w.renew(ctx, worn))
}

// open counts the letters, and finds the queue's delivery limit.
func (w *walk) open() (err error) {
	if w.ch, err = w.conn.Channel(); err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	if w.letters, err = depth(w.ch, w.config.Queue); err != nil || w.letters == 0 {
		return err
	}
	if w.limit, err = w.conn.DeliveryLimit(w.config.Queue); err != nil {
		return err
	}
	w.counted = w.limit.Possible && w.conn.CountsNacks()
	return nil
}

// mayTake refuses to find the oldest letter of a quorum queue. It also refuses a walk that could not replace letters by
// copies, where the broker counts returns of letters.
func (w *walk) mayTake(ctx context.Context) error {
	switch {
	case w.scan.Purpose == consumer.ToFindOldest && w.limit.Possible:
		return fmt.Errorf("queue %q: %w", w.config.Queue, consumer.ErrLookReorders)
	case !w.counted:
		return nil
	}
	if err := w.copies.mayPost(ctx, ""); err != nil {
		return fmt.Errorf("look at queue %q: RabbitMQ before 4.3 counts each look against a delivery limit, "+
			"and the letters cannot be replaced by copies: nothing was changed; "+
			"grant the user write permission on the default exchange "+
			"(rabbitmqctl set_permissions, \"amq.default\"): %w", w.config.Queue, err)
	}
	return nil
}

// remove removes a letter from the queue.
func (w *walk) remove(delivery *amqp.Delivery) error {
	w.held--
	w.acked = true
	return delivery.Ack(false)
}

// wornOut reports whether a letter must not be returned again. With a known limit, one return is kept in reserve for
// a client that is killed during a look.
func (w *walk) wornOut(returns int) bool {
	switch {
	case !w.counted:
		return false
	case w.limit.Returns == amqpconn.Unlimited:
		return returns >= maxReturns
	}
	return returns >= min(maxReturns, max(w.limit.Returns-1, 0))
}

// renew replaces letters by copies of themselves, which the broker has not taken back yet.
func (w *walk) renew(ctx context.Context, worn []*amqp.Delivery) error {
	if len(worn) == 0 {
		return nil
	}
	copies := make([]amqp.Publishing, len(worn))
	for i, delivery := range worn {
		copies[i] = renewed(newLetter(delivery), delivery)
	}
	posted, failed := w.copies.postAll(context.WithoutCancel(ctx), "", w.config.Queue, copies)
	for _, delivery := range worn[:posted] {
		if err := w.remove(delivery); err != nil {
			return err
		}
	}
	if failed == nil {
		return nil
	}
	l := newLetter(worn[min(posted, len(worn)-1)])
	return fmt.Errorf("queue %q may have a delivery limit, %s has come back %d times, and cannot be replaced by a copy; "+
		"RabbitMQ drops it at the limit; do not look again before this is done: %s: %w", w.config.Queue, l.Name(),
		l.returns, amqpconn.UnlimitedPolicy(w.conn.Config.Vhost, w.config.Queue), failed)
}

// renewed is the publishing that replaces a letter. All headers are kept, except headers that name further queues:
// through these headers further copies would arrive there.
func renewed(l letter, d *amqp.Delivery) amqp.Publishing {
	p := republishing(d)
	p.Expiration = d.Expiration
	p.Headers = maps.Clone(d.Headers)
	if p.Headers == nil {
		p.Headers = amqp.Table{}
	}
	for _, name := range []string{"CC", "BCC", headerDeliveryCount, headerAcquiredCount} {
		delete(p.Headers, name)
	}
	if _, known := p.Headers["x-death"]; !known {
		p.Headers[consumer.HeaderExchange], p.Headers[consumer.HeaderRoutingKey] = l.Exchange, l.RoutingKey
	}
	return p
}

// giveBack returns the held letters, and waits until the queue has all letters again, so that the next look finds
// them. Since RabbitMQ 4.3 the broker does not count basic.nack, but counts every other return. The channel of a quorum
// queue keeps answers to itself while many are on their way, and forgets them when it is closed: a removed letter would
// come back, and a returned one would count. So both have arrived before the channel is closed.
func (w *walk) giveBack() {
	wait := returnTimeout + time.Duration(w.held)*returnTime
	defer w.conn.Guard(closeTimeout + wait)() // letters that are on their way when the connection ends would count
	if w.acked && w.limit.Possible {
		w.flush()
	}
	if w.held > 0 {
		_ = w.ch.Nack(0, true, true) // on a failure the connection is lost, and the letters are returned
	}
	for waited := time.Duration(0); waited < wait && w.missing(); waited += returnPoll {
		time.Sleep(returnPoll)
	}
	_ = w.ch.Close()
}

// missing reports whether the queue has fewer letters than the walk left. Other clients may take letters too.
func (w *walk) missing() bool {
	ch, err := w.conn.Channel()
	if err != nil {
		return false
	}
	defer func() { _ = ch.Close() }()
	waiting, err := depth(ch, w.config.Queue)
	return err == nil && waiting < w.letters-w.removed
}
