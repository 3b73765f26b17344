package rabbitmq

import (
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/assert"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// confirmChannel is a channel in confirm mode with its unconfirmed messages.
//
// The broker returns an unroutable message before the acknowledgement, and the library hands over both in the same
// order: when a confirmation is there, the return is in the channel of returns already. So a reader of a confirmation
// drains the returns before judging.
type confirmChannel struct {
	connection *connection
	channel    *amqp.Channel
	// grace is how long after the retirement the channel is closed.
	grace time.Duration
	// returns has room for a return of every message in flight, as the library drops a return when the channel is full.
	returns chan amqp.Return
	// retired is closed when no more messages should be sent here.
	retired    chan struct{}
	retireOnce sync.Once
	// ended is closed when the channel has ended and closed is set.
	ended  chan struct{}
	closed error

	// sending keeps the order of unconfirmed messages equal to the order on the channel.
	sending sync.Mutex

	mu          sync.Mutex
	unconfirmed map[copyKey]*unconfirmed
	// confused is set when a return belongs to no message in flight: acknowledgements cannot be trusted any more.
	confused bool
	// lastAnswered is the highest publish sequence number with an answer.
	lastAnswered uint64
	// abandoned counts the messages in flight that no caller waits for any more.
	abandoned int
}

// copyKey identifies a copy of a message by the fields of a return.
type copyKey struct {
	name                 publish.Name
	exchange, routingKey string
	attempt              int64
}

// unconfirmed is a message that was sent and has no confirmation yet.
type unconfirmed struct {
	key          copyKey
	confirmation *amqp.DeferredConfirmation
	// returned is set when the broker has returned the message.
	returned error
	// judged is set when the answer was taken.
	judged bool
	// next is a later message with the same key. Returns come in the order of publishing, so a return is for the first.
	next *unconfirmed
}

// sequence is the publish sequence number on the channel.
func (u *unconfirmed) sequence() uint64 { return u.confirmation.DeliveryTag }

func newConfirmChannel(
	c *connection, channel *amqp.Channel, window int, onClose func([]publish.Message),
) *confirmChannel {
	ch := &confirmChannel{
		connection: c,
		channel:    channel,
		grace:      c.grace,
		// Room for a window of abandoned messages as well.
		returns:     channel.NotifyReturn(make(chan amqp.Return, 2*window)),
		retired:     make(chan struct{}),
		ended:       make(chan struct{}),
		unconfirmed: make(map[copyKey]*unconfirmed),
	}
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	c.background.Go(func() { ch.watch(closes, onClose) })
	return ch
}

// watch waits for the end of the channel. It calls onClose before a caller learns the fate of a message: a caller that
// publishes the message again finds the message isolated.
func (ch *confirmChannel) watch(closes <-chan *amqp.Error, onClose func([]publish.Message)) {
	reason, hasReason := ch.waitForClose(closes)
	if hasReason {
		ch.closed = reason
	}
	if hasReason && reason.Recover && onClose != nil {
		onClose(ch.inFlight())
	}
	close(ch.ended)
	ch.retire()
}

// waitForClose waits until the channel is closed, and closes a retired channel after the grace.
func (ch *confirmChannel) waitForClose(closes <-chan *amqp.Error) (reason *amqp.Error, hasReason bool) {
	select {
	case reason, hasReason = <-closes:
		return reason, hasReason
	case <-ch.retired:
	}
	grace := time.NewTimer(ch.grace)
	defer grace.Stop()
	select {
	case reason, hasReason = <-closes:
		return reason, hasReason
	case <-grace.C:
	}
	// Close waits for the broker's answer or the end of the connection. The reason of an error comes from closes.
	_ = ch.channel.Close()
	reason, hasReason = <-closes
	return reason, hasReason
}

// reason says why the channel was closed; nil while the channel is open, and when the publisher closed it.
func (ch *confirmChannel) reason() error {
	if !ch.channel.IsClosed() {
		return nil
	}
	<-ch.ended
	return ch.closed
}

// retire takes the channel out of use. Messages in flight may still be answered; after the grace the channel is closed.
func (ch *confirmChannel) retire() {
	ch.retireOnce.Do(func() { close(ch.retired) })
}

// usable says whether a message may be sent here.
func (ch *confirmChannel) usable() bool {
	select {
	case <-ch.retired:
		return false
	default:
		return !ch.channel.IsClosed()
	}
}

// inFlight lists the unconfirmed messages.
func (ch *confirmChannel) inFlight() []publish.Message {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	var all []publish.Message
	for key, u := range ch.unconfirmed {
		for ; u != nil; u = u.next {
			all = append(all, publish.Message{
				Name: key.name, Exchange: key.exchange, RoutingKey: key.routingKey,
			})
		}
	}
	return all
}

// publish sends a message. ErrClosed of the library means that nothing was sent; after any other error a copy may be
// out.
func (ch *confirmChannel) publish(m *publish.Message) (*unconfirmed, error) {
	u := &unconfirmed{key: keyOf(m)}
	ch.sending.Lock()
	defer ch.sending.Unlock()
	ch.add(u)
	confirmation, err := ch.channel.PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, true, false, properties(m))
	if err != nil {
		ch.remove(u)
		return nil, err
	}
	u.confirmation = confirmation
	return u, nil
}

// judgeConfirmed says what became of a message whose confirmation is done. isolated says that no other message was in
// flight: then the broker closed the channel because of this message.
func (ch *confirmChannel) judgeConfirmed(u *unconfirmed, isolated bool) publish.Result {
	assert.Always(!u.judged, "the answer of RabbitMQ to a message is taken once", u.key.name.Producer, u.key.name.ID)
	u.judged = true
	confused := ch.settleReturns(u)
	switch {
	case u.returned != nil:
		return publish.Refused.Because(u.returned)
	case u.confirmation.Acked() && !confused:
		return publish.Result{Outcome: publish.Acked}
	case u.confirmation.Acked():
		return publish.Unsure.Because(errors.New("the broker returned a message that was not in flight; " +
			"its acknowledgements are in doubt"))
	case ch.channel.IsClosed():
		return ch.judgeClosed(isolated)
	default:
		return publish.Refused.Because(errors.New("nack by the broker"))
	}
}

// judgeClosed is judge for a message that the end of the channel left without an answer.
func (ch *confirmChannel) judgeClosed(isolated bool) publish.Result {
	<-ch.ended
	var reason *amqp.Error
	switch {
	case !errors.As(ch.closed, &reason):
		return publish.Unsure.Because(errors.New("the channel was closed before the answer"))
	case isolated && reason.Server && reason.Recover:
		return publish.Refused.Because(reason)
	default:
		return publish.Unsure.Because(fmt.Errorf("the channel was lost before the answer: %w", reason))
	}
}

func (ch *confirmChannel) add(u *unconfirmed) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	first := ch.unconfirmed[u.key]
	if first == nil {
		ch.unconfirmed[u.key] = u
		return
	}
	for first.next != nil {
		first = first.next
	}
	first.next = u
}

func (ch *confirmChannel) remove(u *unconfirmed) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.unlink(u)
}

// unlink removes a message from the list of its key; ch.mu is held.
func (ch *confirmChannel) unlink(u *unconfirmed) {
	first := ch.unconfirmed[u.key]
	switch {
	case first == u && u.next == nil:
		delete(ch.unconfirmed, u.key)
	case first == u:
		ch.unconfirmed[u.key] = u.next
	default:
		for ; first != nil; first = first.next {
			if first.next == u {
				first.next = u.next
				return
			}
		}
	}
}

// settleReturns assigns the returns so far to their messages and removes u.
func (ch *confirmChannel) settleReturns(u *unconfirmed) (confused bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for ch.takeReturn() {
	}
	ch.unlink(u)
	ch.lastAnswered = max(ch.lastAnswered, u.sequence())
	return ch.confused
}

// abandon counts a message that no caller waits for any more; the message stays in flight, as the broker may still
// return the message. The channel stays usable if later messages had answers and there is room for so many returns.
func (ch *confirmChannel) abandon(u *unconfirmed) (usable bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.abandoned++
	return ch.lastAnswered > u.sequence() && ch.abandoned < cap(ch.returns)/2
}

// takeReturn assigns one return to its message, if there is a return; ch.mu is held.
func (ch *confirmChannel) takeReturn() bool {
	select {
	case r, open := <-ch.returns:
		if !open {
			return false
		}
		u := ch.unconfirmed[keyOfReturn(&r)]
		for u != nil && u.returned != nil {
			u = u.next
		}
		if u == nil {
			ch.confused = true
			ch.retire()
			return true
		}
		u.returned = fmt.Errorf("returned by the broker: %d %s", r.ReplyCode, r.ReplyText)
		return true
	default:
		return false
	}
}
