package rabbitmqconsumer

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
)

// postTimeout bounds one publishing with its wait for others and for the confirmation; after that the outcome is
// unknown.
const postTimeout = 10 * time.Second

// poster publishes messages in turn and waits for the broker's confirmation of each. The connection is not shared
// with the deliveries: a broker under an alarm stops reading from publishers, and acknowledgements must still get
// through.
type poster struct {
	// connect opens a connection to any node, and leaves some of the context's time for the rest.
	connect func(ctx context.Context) (*amqpconn.Conn, error)

	mu      sync.Mutex
	conn    *amqpconn.Conn
	ch      *amqp.Channel
	returns chan amqp.Return
	// closes gets why the broker closed the channel.
	closes chan *amqp.Error
}

// post returns nil when the broker has acknowledged the message and routed it to a queue.
func (p *poster) post(ctx context.Context, exchange, key string, m amqp.Publishing) error {
	_, err := p.postAll(ctx, exchange, key, []amqp.Publishing{m})
	return err
}

// postAll publishes at most mostTaken messages, and then waits for the answers. It returns how many of the first ones
// the broker has acknowledged and routed; an error is about the next one. Later ones may be in their queue too.
func (p *poster) postAll(
	ctx context.Context, exchange, key string, all []amqp.Publishing,
) (posted int, err error) {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil {
		// Earlier messages got no answer: under an alarm each caller waits for postTimeout at most, not for the sum of
		// all waits.
		return 0, fmt.Errorf("publish to exchange %q by %q: waited for others: %w", exchange, key, ctx.Err())
	}
	if err = p.open(ctx); err == nil {
		posted, err = p.publish(ctx, exchange, key, all)
	}
	if err != nil {
		// A late answer on the old channel belongs to no message any more.
		p.shut()
		return posted, fmt.Errorf("publish to exchange %q by %q: %w", exchange, key, err)
	}
	return posted, nil
}

func (p *poster) open(ctx context.Context) error {
	if p.ch != nil && !p.ch.IsClosed() {
		return nil
	}
	p.shut()
	conn, err := p.connect(ctx)
	if err != nil {
		return err
	}
	p.conn = conn
	defer context.AfterFunc(ctx, conn.HangUp)()
	if p.ch, err = conn.Channel(); err != nil {
		return fmt.Errorf("open a channel: %w", err)
	}
	p.returns = p.ch.NotifyReturn(make(chan amqp.Return, mostTaken)) // a full one would stop the answers
	p.closes = p.ch.NotifyClose(make(chan *amqp.Error, 1))
	return p.ch.Confirm(false)
}

func (p *poster) publish(ctx context.Context, exchange, key string, all []amqp.Publishing) (int, error) {
	confirmations := make([]*amqp.DeferredConfirmation, len(all))
	for i := range all {
		var err error
		confirmations[i], err = p.ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, true, false, all[i])
		if err != nil {
			return 0, err
		}
	}
	for i, confirmation := range confirmations {
		acknowledged, err := amqpconn.Answer(ctx, confirmation)
		if err != nil {
			return i, fmt.Errorf("no answer of the broker: %w", err)
		}
		// The broker sends a return before the acknowledgement, so a return has arrived by now. It may be that of a later
		// message: then none counts as posted.
		select {
		case r, open := <-p.returns:
			if open {
				return 0, fmt.Errorf("%w: %d %s", errReturned, r.ReplyCode, r.ReplyText)
			}
		default:
		}
		if !acknowledged {
			return i, p.refusal()
		}
	}
	return len(all), nil
}

// refusal is why a message was not acknowledged.
func (p *poster) refusal() error {
	select {
	case closed := <-p.closes:
		if closed != nil {
			return closed
		}
	default:
	}
	return errors.New("the broker did not take it")
}

// errReturned: the broker has routed a message to no queue.
var errReturned = errors.New("returned")

// mayPost returns nil when the broker lets this user publish to the exchange. The message for this check cannot reach
// any queue.
func (p *poster) mayPost(ctx context.Context, exchange string) error {
	err := p.post(ctx, exchange, "msghandler.permission."+rand.Text(), amqp.Publishing{})
	if errors.Is(err, errReturned) {
		return nil
	}
	return err
}

// close ends the connection, if any.
func (p *poster) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut()
}

func (p *poster) shut() {
	if p.conn != nil {
		p.conn.CloseWithin(closeTimeout)
	}
	p.conn, p.ch = nil, nil
}
