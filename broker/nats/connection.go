package nats

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// dialTimeout bounds reaching one server and the handshake with it.
const dialTimeout = 3 * time.Second

// examineTimeout bounds the question whether JetStream is available.
const examineTimeout = 2 * time.Second

// connection is one connection to a server, from dial to loss, with its messages in flight.
type connection struct {
	conn *nats.Conn
	js   jetstream.JetStream
	// ended is closed when the connection has ended.
	ended chan struct{}

	mu       sync.Mutex
	inFlight map[*nats.Msg]*sent
	closed   bool
	// lastError is the latest error that the server sent.
	lastError error
	// unasked is set when the user may not ask for the account: then nothing is known about JetStream.
	unasked bool
}

// sent is a message in flight. Its fate is settled once: by the answer, by the end of the connection, or by the confirm
// timeout.
type sent struct {
	call  *publishCall
	place int
	// late is set when the confirm timeout has passed; an acknowledgement after that ends the stall of the stream.
	late func()
}

// dial connects to the first server that answers. The caller closes the connection, and then waits for the group.
func dial(
	ctx context.Context, where address.NATS, config Config, discovered []string, background *lifecycle.Group,
) (*connection, error) {
	c := &connection{ended: make(chan struct{}), inFlight: make(map[*nats.Msg]*sent)}
	over := make(chan struct{})
	var err error
	c.conn, err = natsconn.Dial(ctx, where, natsconn.Config{
		Name: config.Name, Dial: config.Dial, TLS: config.TLS, Handshake: config.Handshake, DialTimeout: dialTimeout,
		PingInterval: config.Heartbeat, WriteTimeout: config.WriteTimeout,
		Discovered: discovered, OnError: c.serverError, OnClosed: func() { close(over) },
	})
	if err != nil {
		return nil, err
	}
	if err = c.open(config); err != nil {
		c.conn.Close()
		return nil, err
	}
	background.Go(func() {
		<-over
		c.end()
	})
	return c, nil
}

// open prepares publishing on the connection.
func (c *connection) open(config Config) (err error) {
	c.js, err = jetstream.New(c.conn,
		jetstream.WithPublishAsyncAckHandler(func(_ jetstream.JetStream, m *nats.Msg, ack *jetstream.PubAck) {
			c.answered(m, ack, nil)
		}),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, m *nats.Msg, err error) {
			c.answered(m, nil, err)
		}),
		// Messages whose timeout has passed take no slot, and stay for as long again.
		jetstream.WithPublishAsyncMaxPending(4*max(config.Window, 1)),
		jetstream.WithPublishAsyncTimeout(2*max(config.ConfirmTimeout, time.Second)),
		jetstream.WithDefaultTimeout(examineTimeout),
	)
	return err
}

// close ends the connection and returns when every message has a fate.
func (c *connection) close() {
	c.conn.Close()
	<-c.ended
}

// end settles what is in flight when the connection has ended.
func (c *connection) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.js.CleanupPublisher() // reports each message in flight
	close(c.ended)
}

// loss says why the connection has ended.
func (c *connection) loss() error {
	err := c.conn.LastError()
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		err = c.lastError
	}
	if err == nil {
		return errors.New("the connection was closed")
	}
	return fmt.Errorf("the connection was lost: %w", err)
}

// publish sends a message. The fate follows, also after a failure.
func (c *connection) publish(m *nats.Msg, s *sent) {
	c.mu.Lock()
	over := c.closed || s.call.expired.Load()
	if !over {
		c.inFlight[m] = s
	}
	c.mu.Unlock()
	if over {
		why := fmt.Errorf("%w: the connection or the time has just ended", publish.ErrDisconnected)
		s.call.conclude(s, publish.Unsent.Because(why))
		return
	}
	// No repeat by the library: the send loop repeats, and counts the copies.
	_, err := c.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
	if err == nil {
		return
	}
	fate, cause := natsconn.JudgeUnwritten(err)
	if s := c.takeInFlight(m); s != nil && s.late == nil { // a hanging write may outlast the confirm timeout
		s.call.conclude(s, resultOf(fate, cause))
	}
	if fate == natsconn.Unknown {
		c.conn.Close()
	}
}

// takeInFlight removes a message from those in flight; nil if its fate is settled.
func (c *connection) takeInFlight(m *nats.Msg) *sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.inFlight[m]
	delete(c.inFlight, m)
	return s
}

// answered takes the answer to a message, or the reason why there will be none.
func (c *connection) answered(m *nats.Msg, ack *jetstream.PubAck, err error) {
	if s := c.takeInFlight(m); s != nil {
		s.call.Protect(func() { c.conclude(s, ack, err) })
	}
}

// conclude settles a message that has its answer, or the reason why there will be none.
func (c *connection) conclude(s *sent, ack *jetstream.PubAck, err error) {
	if s.late != nil {
		if ack != nil {
			s.late()
		}
		return
	}
	fate, cause := natsconn.Judge(err)
	s.call.publisher.noteRoom(fate, cause)
	if fate == natsconn.Untaken {
		s.call.Go(func() { s.call.untaken(c, s) })
		return
	}
	if ack != nil && ack.Duplicate {
		s.call.publisher.duplicates.Add(1)
	}
	s.call.conclude(s, resultOf(fate, cause))
}

// expire returns the messages of a call that are still in flight. A late answer finds the message by its mark.
func (c *connection) expire(call *publishCall, late func(place int) func()) (expired []*sent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.inFlight {
		if s.call == call && s.late == nil {
			s.late = late(s.place)
			expired = append(expired, s)
		}
	}
	return expired
}

// accountRequest is the subject of the question whether JetStream is available.
const accountRequest = "$JS.API.INFO"

// serverError takes an error that the server sent apart from any answer. A refused publishing is known only by its
// subject. All messages to the subject in flight are refused: a copy of an earlier one may be stored, and JetStream
// deduplicates its repeat.
func (c *connection) serverError(err error) {
	c.mu.Lock()
	c.lastError = err
	var refusals []*sent
	if subject := natsconn.Forbidden(err); subject != "" {
		c.unasked = c.unasked || subject == accountRequest
		for m, s := range c.inFlight {
			if m.Subject == subject && s.late == nil {
				delete(c.inFlight, m)
				refusals = append(refusals, s)
			}
		}
	}
	c.mu.Unlock()
	for _, s := range refusals {
		s.call.conclude(s, publish.Refused.Because(err))
	}
}

// examine asks whether JetStream is available to the account; nil if it is, or if the user may not ask.
func (c *connection) examine(ctx context.Context) error {
	if c.mayNotAsk() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, examineTimeout)
	defer cancel()
	_, err := c.js.AccountInfo(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil || c.unasked:
		return nil
	case errors.Is(err, context.DeadlineExceeded) && c.lastError != nil:
		return fmt.Errorf("%w: no answer to %s; the server's latest error: %w",
			publish.ErrBlocked, accountRequest, c.lastError)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: no answer to %s", publish.ErrBlocked, accountRequest)
	default:
		return fmt.Errorf("%w: %w", publish.ErrBlocked, err)
	}
}

func (c *connection) mayNotAsk() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unasked
}
