package rabbitmq

import (
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// lane is a channel in confirm mode with what is in flight on it.
//
// The broker returns an unroutable message first and acknowledges it then, and the library hands both on in that order:
// when a confirmation is there, its return is in the returns channel already. So whoever sees a confirmation drains the
// returns before it judges.
type lane struct {
	link    *link
	channel *amqp.Channel
	// grace is how long after its retirement the channel is closed.
	grace time.Duration
	// returns has room for a return of every message in flight, as the library drops one that it cannot hand over.
	returns chan amqp.Return
	// retired is closed when no more messages should be sent here.
	retired    chan struct{}
	retireOnce sync.Once
	// done is closed when the channel has ended and closed is set.
	done   chan struct{}
	closed error

	// send keeps the order of flights that of the channel.
	send sync.Mutex

	mu      sync.Mutex
	flights map[flightKey]*flight
	// confused is set when a return belongs to nothing in flight: no acknowledgement can be believed any more.
	confused bool
	// sent counts the flights, answered is the number of the latest one that had an answer, abandoned how many nobody
	// waits for any more.
	sent, answered, abandoned int
}

// flightKey is what a returned message tells about itself.
type flightKey struct {
	name                 halfmsg.Name
	exchange, routingKey string
	attempt              int64
}

// flight is one message on its way.
type flight struct {
	key flightKey
	// headers are the caller's, until they are looked at because there was no answer.
	headers map[string]string
	// number is the how manieth of its lane it is.
	number       int
	confirmation *amqp.DeferredConfirmation
	// returned is set when the broker has sent it back.
	returned error
	// next is a later flight with the same key. Returns come in the order of publishing, so the first one is meant.
	next *flight
}

func newLane(k *link, channel *amqp.Channel, window int, onClose func([]*flight)) *lane {
	l := &lane{
		link:    k,
		channel: channel,
		grace:   k.grace,
		// Room for a window of messages that nobody waits for any more as well.
		returns: channel.NotifyReturn(make(chan amqp.Return, 2*window)),
		retired: make(chan struct{}),
		done:    make(chan struct{}),
		flights: make(map[flightKey]*flight),
	}
	go l.watch(channel.NotifyClose(make(chan *amqp.Error, 1)), onClose)
	return l
}

// watch waits for the channel's end. It tells onClose before anybody learns the fate of a flight, so that whoever
// publishes it again finds it distrusted.
func (l *lane) watch(closes <-chan *amqp.Error, onClose func([]*flight)) {
	err, told := <-closes
	if told {
		l.closed = err
	}
	if told && err.Recover && onClose != nil {
		onClose(l.inFlight())
	}
	close(l.done)
	l.retire()
}

// reason says why the channel was closed, nil when it is open or we closed it.
func (l *lane) reason() error {
	if !l.channel.IsClosed() {
		return nil
	}
	<-l.done
	return l.closed
}

// retire takes the lane out of use. What is on its way may still be answered; after its grace the channel is closed.
func (l *lane) retire() {
	l.retireOnce.Do(func() {
		close(l.retired)
		// Close waits for the broker's answer or the connection's end. An error is a farewell that was not heard.
		time.AfterFunc(l.grace, func() { _ = l.channel.Close() })
	})
}

// serves says whether a message may be sent here.
func (l *lane) serves() bool {
	select {
	case <-l.retired:
		return false
	default:
		return !l.channel.IsClosed()
	}
}

// inFlight lists what is on its way.
func (l *lane) inFlight() []*flight {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []*flight
	for _, f := range l.flights {
		for ; f != nil; f = f.next {
			all = append(all, f)
		}
	}
	return all
}

// publish sends a message. ErrClosed of the library means that nothing was sent; after any other error a copy may be
// out.
func (l *lane) publish(m *halfmsg.Publishing) (*flight, error) {
	f := &flight{key: keyOf(m), headers: m.Headers}
	l.send.Lock()
	defer l.send.Unlock()
	l.add(f)
	confirmation, err := l.channel.PublishWithDeferredConfirm(m.Exchange, m.RoutingKey, true, false, properties(m))
	if err != nil {
		l.remove(f)
		return nil, err
	}
	f.confirmation = confirmation
	return f, nil
}

// judge says what became of a flight whose confirmation is done. alone says that nothing else was in flight: when the
// broker closed the channel then, it was because of this message.
func (l *lane) judge(f *flight, alone bool) halfmsg.PublishResult {
	confused := l.settle(f)
	switch {
	case f.returned != nil:
		return refused(f.returned)
	case f.confirmation.Acked() && !confused:
		return halfmsg.PublishResult{Outcome: halfmsg.Acked}
	case f.confirmation.Acked():
		return unsure(errors.New("the broker returned a message that nobody sent; its acknowledgements are in doubt"))
	case l.channel.IsClosed():
		return l.judgeClosed(alone)
	default:
		return refused(errors.New("nack by the broker"))
	}
}

// judgeClosed is judge for a flight that the channel's end left without an answer.
func (l *lane) judgeClosed(alone bool) halfmsg.PublishResult {
	<-l.done
	var reason *amqp.Error
	switch {
	case !errors.As(l.closed, &reason):
		return unsure(errors.New("the channel was closed before the answer"))
	case alone && reason.Server && reason.Recover:
		return refused(reason)
	default:
		return unsure(fmt.Errorf("the channel was lost before the answer: %w", reason))
	}
}

func (l *lane) add(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	f.number = l.sent
	first := l.flights[f.key]
	if first == nil {
		l.flights[f.key] = f
		return
	}
	for first.next != nil {
		first = first.next
	}
	first.next = f
}

func (l *lane) remove(f *flight) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unlink(f)
}

// unlink takes a flight out; l.mu is held.
func (l *lane) unlink(f *flight) {
	first := l.flights[f.key]
	switch {
	case first == f && f.next == nil:
		delete(l.flights, f.key)
	case first == f:
		l.flights[f.key] = f.next
	default:
		for ; first != nil; first = first.next {
			if first.next == f {
				first.next = f.next
				return
			}
		}
	}
}

// settle gives the returns that have come to their flights and takes f out.
func (l *lane) settle(f *flight) (confused bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.takeReturn() {
	}
	l.unlink(f)
	l.answered = max(l.answered, f.number)
	return l.confused
}

// abandon takes a flight that nobody waits for any more; it stays in flight, as it may still be returned. The lane
// serves on if later ones had answers and there is room for the returns of so many.
func (l *lane) abandon(f *flight) (serves bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.abandoned++
	return l.answered > f.number && l.abandoned < cap(l.returns)/2
}

// takeReturn gives one return to its flight, if there is one; l.mu is held.
func (l *lane) takeReturn() bool {
	select {
	case r, open := <-l.returns:
		if !open {
			return false
		}
		f := l.flights[keyOfReturn(&r)]
		for f != nil && f.returned != nil {
			f = f.next
		}
		if f == nil {
			l.confused = true
			l.retire()
			return true
		}
		f.returned = fmt.Errorf("returned by the broker: %d %s", r.ReplyCode, r.ReplyText)
		return true
	default:
		return false
	}
}

func refused(cause error) halfmsg.PublishResult {
	return halfmsg.PublishResult{Outcome: halfmsg.Refused, Cause: cause}
}

func unsure(cause error) halfmsg.PublishResult {
	return halfmsg.PublishResult{Outcome: halfmsg.Unsure, Cause: cause}
}

func unsent(cause error) halfmsg.PublishResult {
	return halfmsg.PublishResult{Outcome: halfmsg.Unsent, Cause: cause}
}
