package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/amqpconn"
	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

const (
	// dialTimeout bounds reaching a node and the handshakes with it.
	dialTimeout = 10 * time.Second
	// openTimeout bounds opening a channel. A broker without an answer by then counts as lost, even while TCP is up.
	openTimeout = 5 * time.Second
	// closeTimeout bounds the farewell to a broker; a broker under an alarm never answers the farewell.
	closeTimeout = time.Second
)

// dialError says that no connection came about.
type dialError struct{ cause error }

func (e *dialError) Error() string { return "connect: " + e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

// Is says for publish.ErrAccessRefused whether the broker has said that it refuses user, password or virtual host.
func (e *dialError) Is(target error) bool {
	var reason *amqp.Error
	switch target {
	case publish.ErrAccessRefused:
		return errors.As(e.cause, &reason) && reason.Server &&
			(reason.Code == amqp.AccessRefused || reason.Code == amqp.NotAllowed)
	case publish.ErrHandshake:
		return errors.Is(e.cause, amqpconn.ErrHandshake)
	}
	return false
}

// parseNodes reads the URLs of a broker's nodes.
func parseNodes(urls string) ([]address.AMQP, error) {
	all := strings.Split(urls, ",")
	nodes := make([]address.AMQP, len(all))
	for i, url := range all {
		var err error
		if nodes[i], err = address.ParseAMQP(url); err != nil {
			return nil, fmt.Errorf("URL %d of the broker %w", i+1, err)
		}
	}
	return nodes, nil
}

// connection is one connection to a node, from dial to loss. Nothing of a lost connection is used again.
type connection struct {
	conn *amqpconn.Conn
	// background has the goroutines of the connection and its channels. They end soon after the connection.
	background *lifecycle.Group
	// blocked gets the broker's alarms.
	blocked chan amqp.Blocking
	// ended is closed when the connection has ended and loss is set.
	ended chan struct{}
	loss  error
	// grace is how long a retired channel stays open for answers.
	grace time.Duration
}

// dial connects, within dialTimeout. The caller closes the connection, and then waits for the group.
func dial(ctx context.Context, node address.AMQP, config Config, background *lifecycle.Group) (*connection, error) {
	conn, err := amqpconn.Dial(ctx, node.URL, amqpconn.Config{
		Name: config.Name, Dial: config.Dial, TLS: config.TLS, Handshake: config.Handshake, Heartbeat: config.Heartbeat,
		DialTimeout: dialTimeout, WriteTimeout: config.WriteTimeout,
	})
	if err != nil {
		return nil, &dialError{cause: err}
	}
	c := &connection{
		conn: conn, background: background, blocked: make(chan amqp.Blocking, 16), ended: make(chan struct{}),
		grace: config.ConfirmTimeout,
	}
	conn.NotifyBlocked(c.blocked)
	closes := conn.NotifyClose(make(chan *amqp.Error, 1))
	background.Go(func() { c.watch(closes) })
	return c, nil
}

// watch waits for the connection's end.
func (c *connection) watch(closes <-chan *amqp.Error) {
	c.loss = errors.New("the connection was closed")
	if err := <-closes; err != nil {
		c.loss = fmt.Errorf("the connection was lost: %w", err)
	}
	close(c.ended)
}

// reason waits for the end of the connection and says why.
func (c *connection) reason() error {
	<-c.ended
	return c.loss
}

// open opens a channel in confirm mode with room for window messages. After openTimeout the connection is closed
// instead. onClose gets the messages in flight when the broker closes the channel; nil is fine.
func (c *connection) open(window int, onClose func(inFlight []publish.Message)) (*confirmChannel, error) {
	defer c.conn.Guard(openTimeout)()
	channel, err := c.conn.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	switch {
	case err != nil && c.conn.IsClosed():
		return nil, c.reason()
	case err != nil:
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	return newConfirmChannel(c, channel, window, onClose), nil
}

// close ends the connection within closeTimeout and returns when the connection has ended.
func (c *connection) close() {
	c.conn.CloseWithin(closeTimeout)
	<-c.ended
}
