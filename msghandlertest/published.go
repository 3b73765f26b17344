package msghandlertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
)

// Message is a message that the broker has taken.
type Message struct {
	// ID is the producer's business number, and Producer its name.
	ID, Producer string
	// Exchange and RoutingKey are the message's own.
	Exchange, RoutingKey string
	// ContentType is the body's media type; empty when the producer gave none.
	ContentType string
	// Headers are the producer's own and the trace context.
	Headers map[string]string
	// Body is the content.
	Body []byte
	// Attempt is 1 for the first copy of the message. Above 1, an earlier copy may have been delivered.
	Attempt int
	// Timestamp is when the message became due, in whole seconds: its delay after it became SENDABLE.
	Timestamp time.Time
}

// Delivery is the message as a handler of the consumer SDK gets it, in its first delivery.
func (m Message) Delivery() *consumer.Message {
	return &consumer.Message{
		ID: m.ID, Producer: m.Producer, Attempt: m.Attempt, Exchange: m.Exchange, RoutingKey: m.RoutingKey,
		ContentType: m.ContentType, Headers: maps.Clone(m.Headers), Body: bytes.Clone(m.Body), Timestamp: m.Timestamp,
	}
}

// Duplicate is the next copy of the message, as the coordinator publishes it when an acknowledgement was lost: the same
// content and a higher Attempt. A consumer must handle it without a second effect.
func (m Message) Duplicate() Message {
	m.Attempt++
	return m
}

// String names the message, for failures of tests.
func (m Message) String() string {
	return fmt.Sprintf("%s/%s to %q with key %q, attempt %d", m.Producer, m.ID, m.Exchange, m.RoutingKey, m.Attempt)
}

// Match chooses messages.
type Match func(Message) bool

// ByID chooses the message of an id, of any producer.
func ByID(id string) Match { return func(m Message) bool { return m.ID == id } }

// ByRoutingKey chooses messages with a routing key.
func ByRoutingKey(key string) Match { return func(m Message) bool { return m.RoutingKey == key } }

// ByExchange chooses messages to an exchange.
func ByExchange(name string) Match { return func(m Message) bool { return m.Exchange == name } }

// fitsAll says whether a message fits all of them.
func fitsAll(m Message, which []Match) bool {
	return !slices.ContainsFunc(which, func(fits Match) bool { return !fits(m) })
}

// Published returns the messages that the broker has taken so far and that fit all of which, in their order. Each copy
// of a message is listed, and no copy in send.dead_letter_exchange. A message that is published later is not listed:
// call Wait or WaitIdle first.
func (c *Coordinator) Published(which ...Match) []Message {
	return slices.DeleteFunc(c.capture.list(), func(m Message) bool { return !fitsAll(m, which) })
}

// Wait waits until the broker has taken a message that fits all of which, and returns the first. The test fails when
// none comes within WithTimeout, 10 s by default.
func (c *Coordinator) Wait(t testing.TB, which ...Match) (found Message) {
	t.Helper()
	published := func(context.Context) error {
		fitting := c.Published(which...)
		if len(fitting) == 0 {
			return fmt.Errorf("published were %s", listed(c.Published()))
		}
		found = fitting[0]
		return nil
	}
	if err := await(c.options.timeout, "a message is published that fits", published); err != nil {
		t.Fatalf("msghandlertest: %v\n%s", err, c.unpublished())
	}
	return found
}

// AssertNothingPublished calls WaitIdle, and fails the test if the broker has taken a message that fits all of which.
func (c *Coordinator) AssertNothingPublished(t testing.TB, which ...Match) {
	t.Helper()
	c.WaitIdle(t)
	if found := c.Published(which...); len(found) > 0 {
		t.Errorf("msghandlertest: published was %s", listed(found))
	}
}

// Deliver hands every published message to a handler of the consumer SDK, in their order, as its consumer would: a
// panic is an error. It returns the errors of the handler, each with the message's name. Nothing is repeated. Deliver
// does not wait: call Wait or WaitIdle first. That no message fits is an error, because the handler was not tested.
func (c *Coordinator) Deliver(ctx context.Context, handler consumer.Handler, which ...Match) error {
	messages := c.Published(which...)
	if len(messages) == 0 {
		return fmt.Errorf("msghandlertest: Deliver: no message fits; published were %s", listed(c.Published()))
	}
	var failed []error
	safe := consumer.Chain(handler, consumer.Recover())
	for _, m := range messages {
		if err := safe.Handle(ctx, m.Delivery()); err != nil {
			failed = append(failed, fmt.Errorf("%s/%s: %w", m.Producer, m.ID, err))
		}
	}
	return errors.Join(failed...)
}

// listed names messages.
func listed(messages []Message) string {
	if len(messages) == 0 {
		return "none"
	}
	names := make([]string, len(messages))
	for i, m := range messages {
		names[i] = m.String()
	}
	return strings.Join(names, "; ")
}

// capture keeps what the broker takes, and lets the faults of the broker happen.
type capture struct {
	faults *faults

	mu        sync.Mutex
	messages  []Message
	blocked   bool
	unblocked *sync.Cond
}

func newCapture(f *faults) *capture {
	c := &capture{faults: f}
	c.unblocked = sync.NewCond(&c.mu)
	return c
}

func (c *capture) list() []Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.messages)
}

func (c *capture) setBlocked(blocked bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blocked = blocked
	c.unblocked.Broadcast()
}

// judgePublished decides each publishing. The dead letters of the coordinator and of consumers are no messages of a
// producer: they pass. Those of consumers have no attempt.
func (c *capture) judgePublished(p amqpbroker.Published) amqpbroker.Verdict {
	attempt, ours := p.Headers[headerAttempt]
	if _, dead := p.Headers[headerDeadReason]; dead || !ours {
		return amqpbroker.Ack
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.blocked {
		c.unblocked.Wait()
	}
	switch c.faults.takeFault(publish, p.MessageID).effect {
	case brokerNacks:
		return amqpbroker.Nack
	case brokerReturns:
		return amqpbroker.Return
	case brokerLosesAck:
		c.messages = append(c.messages, newMessage(p, attempt))
		return amqpbroker.CloseConn
	}
	c.messages = append(c.messages, newMessage(p, attempt))
	return amqpbroker.Ack
}

// Headers of the coordinator, and their prefix. Only its dead letters have a reason.
const (
	headerPrefix     = "msghandler-"
	headerAttempt    = headerPrefix + "attempt"
	headerDeadReason = headerPrefix + "dead-reason"
)

func newMessage(p amqpbroker.Published, attempt any) Message {
	m := Message{
		ID: p.MessageID, Producer: p.AppID, Exchange: p.Exchange, RoutingKey: p.RoutingKey, ContentType: p.ContentType,
		Headers: map[string]string{}, Body: bytes.Clone(p.Body), Timestamp: p.Timestamp,
	}
	m.Attempt, _ = strconv.Atoi(fmt.Sprint(attempt))
	for name, value := range p.Headers {
		if !strings.HasPrefix(name, headerPrefix) {
			m.Headers[name] = fmt.Sprint(value)
		}
	}
	return m
}
