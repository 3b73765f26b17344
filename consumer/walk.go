package consumer

import (
	"context"
	"fmt"
	"maps"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/amqpconn"
)

const (
	// returnTimeout bounds waiting for the queue to have its letters again, and returnPoll is how often it is asked.
	returnTimeout = time.Second
	returnPoll    = 10 * time.Millisecond
)

// maxReturns is how often a letter comes back before it is replaced by a copy, where each return counts against a
// delivery limit. A policy may have set a limit that cannot be seen, so one return is the most that loses nothing at
// any limit above 0.
const maxReturns = 1

// walked says what to do with a letter that was visited, and whether it was the last one.
type walked struct{ remove, last bool }

// walk is one pass over a dead-letter queue.
type walk struct {
	config Config
	conn   *amqpconn.Conn
	ch     *amqp.Channel
	// limit is the queue's delivery limit, and counted says that the broker counts what the walk gives back.
	limit   amqpconn.Limit
	counted bool
	// copies publishes what replaces letters that came back too often.
	copies poster
	// letters is how many there were, held how many are taken and not settled, and removed how many are gone for good.
	letters, held, removed int
}

// walk visits the letters that are there now, the oldest first, and gives back what it does not remove. It ends with
// the context, and then still gives back: the broker counts a letter whose connection is lost.
func (d *DeadLetters) walk(ctx context.Context, visit func(Letter, *amqp.Delivery) (walked, error)) error {
	conn, err := d.config.dialAny(ctx, "dead letters")
	if err != nil {
		return err
	}
	defer conn.CloseWithin(closeTimeout)
	defer context.AfterFunc(ctx, func() { conn.Guard(closeTimeout) })()
	w := &walk{config: d.config, conn: conn}
	w.copies.connect = func(ctx context.Context) (*amqpconn.Conn, error) {
		return d.config.dialAny(ctx, "dead letters' copies")
	}
	defer w.copies.close()
	if err := w.open(ctx); err != nil {
		return err
	}
	defer w.giveBack()
	for range w.letters {
		if last, err := w.next(ctx, visit); last || err != nil {
			return err
		}
	}
	return nil
}

// open counts the letters, finds the queue's delivery limit, and refuses a walk that could not replace letters by
// copies.
func (w *walk) open(ctx context.Context) (err error) {
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
	if !w.counted {
		return nil
	}
	if err := w.copies.mayPost(ctx, ""); err != nil {
		return fmt.Errorf("look at queue %q: RabbitMQ before 4.3 counts each look against a delivery limit, and the "+
			"letters cannot "+
			"be replaced by copies: nothing was changed; grant the user write permission on the default exchange "+
			"(rabbitmqctl set_permissions, \"amq.default\"): %w", w.config.Queue, err)
	}
	return nil
}

// next visits one letter.
func (w *walk) next(ctx context.Context, visit func(Letter, *amqp.Delivery) (walked, error)) (last bool, err error) {
	delivery, found, err := w.ch.Get(w.config.Queue, false)
	if err != nil {
		return true, fmt.Errorf("get from queue %q: %w", w.config.Queue, err)
	}
	if !found {
		return true, ctx.Err()
	}
	w.held++
	if ctx.Err() != nil {
		return true, ctx.Err()
	}
	letter := newLetter(&delivery)
	do, err := visit(letter, &delivery)
	switch {
	case err != nil:
	case do.remove:
		w.removed++
		err = w.remove(&delivery)
	case w.wornOut(letter.returns):
		err = w.renew(ctx, letter, &delivery)
	}
	return do.last, err
}

// remove removes a letter from the queue.
func (w *walk) remove(delivery *amqp.Delivery) error {
	w.held--
	return delivery.Ack(false)
}

// wornOut says whether a letter that came back so often must not come back once more. Where the limit is known, one
// return is kept for a client that is killed while it looks.
func (w *walk) wornOut(returns int) bool {
	switch {
	case !w.counted:
		return false
	case w.limit.Returns == amqpconn.Unlimited:
		return returns >= maxReturns
	}
	return returns >= min(maxReturns, max(w.limit.Returns-1, 0))
}

// renew replaces a letter by a copy of itself, which the broker has not taken back yet.
func (w *walk) renew(ctx context.Context, letter Letter, delivery *amqp.Delivery) error {
	if err := w.copies.post(ctx, "", w.config.Queue, renewed(letter, delivery)); err != nil {
		return fmt.Errorf("queue %q may have a delivery limit, %s has come back %d times, and cannot be replaced by a copy; "+
			"RabbitMQ drops it at the limit; do not look again before this is done: %s: %w", w.config.Queue, letter.name(),
			letter.returns, amqpconn.UnlimitedPolicy(w.conn.Config.Vhost, w.config.Queue), err)
	}
	return w.remove(delivery)
}

// renewed is a letter as it is published in place of itself. It has all headers that make it the same letter; those
// that name further queues would bring it there once more.
func renewed(letter Letter, d *amqp.Delivery) amqp.Publishing {
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
		p.Headers[HeaderExchange], p.Headers[HeaderRoutingKey] = letter.Exchange, letter.RoutingKey
	}
	return p
}

// giveBack returns what is held, and waits until the queue has all letters again, so that the next look finds them. The
// broker counts no basic.nack since RabbitMQ 4.3, and each other way.
func (w *walk) giveBack() {
	defer w.conn.Guard(closeTimeout)()
	if w.held > 0 {
		_ = w.ch.Nack(0, true, true) // where it does not arrive the connection is lost, and the letters come back
	}
	if w.ch.Close() != nil { // the broker has the answer when it has closed the channel
		return
	}
	for waited := time.Duration(0); waited < returnTimeout && w.missing(); waited += returnPoll {
		time.Sleep(returnPoll)
	}
}

// missing says whether fewer letters are there than the walk left. Where others take letters too, nobody knows.
func (w *walk) missing() bool {
	ch, err := w.conn.Channel()
	if err != nil {
		return false
	}
	defer func() { _ = ch.Close() }()
	waiting, err := depth(ch, w.config.Queue)
	return err == nil && waiting < w.letters-w.removed
}
