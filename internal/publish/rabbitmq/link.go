package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/address"
	"github.com/msghandler/msghandler/internal/amqpconn"
)

const (
	// dialTimeout bounds reaching a node and the handshakes with it.
	dialTimeout = 10 * time.Second
	// openTimeout bounds opening a channel. A broker that does not answer that is not there, whatever TCP says.
	openTimeout = 5 * time.Second
	// closeTimeout bounds the farewell to a broker, which one under an alarm never answers.
	closeTimeout = time.Second
)

// dialError says that no connection came about.
type dialError struct{ cause error }

func (e *dialError) Error() string { return "connect: " + e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

// Is says of ErrTurnedAway whether the broker itself refused the handshake.
func (e *dialError) Is(target error) bool {
	var refused *amqp.Error
	if target != ErrTurnedAway || !errors.As(e.cause, &refused) {
		return false
	}
	return refused.Code == amqp.AccessRefused || refused.Code == amqp.NotAllowed // others are the library's own
}

// ErrTurnedAway says that a broker answers and does not let us in: the user, the password or the virtual host is wrong.
var ErrTurnedAway = errors.New("the broker does not let us in")

// parseNodes reads the URLs of a broker's nodes.
func parseNodes(urls []string) ([]address.AMQP, error) {
	if len(urls) == 0 {
		return nil, errors.New("no URL of a broker")
	}
	nodes := make([]address.AMQP, len(urls))
	for i, url := range urls {
		var err error
		if nodes[i], err = address.ParseAMQP(url); err != nil {
			return nil, fmt.Errorf("URL %d of the broker %w", i+1, err)
		}
	}
	return nodes, nil
}

// link is one connection.
type link struct {
	connection *amqpconn.Conn
	// blocked gets the broker's alarms.
	blocked chan amqp.Blocking
	// done is closed when the connection has ended and lost is set.
	done chan struct{}
	lost error
	// grace is how long a lane that is out of use stays open for answers.
	grace time.Duration
}

// dial connects, within dialTimeout.
func dial(ctx context.Context, node address.AMQP, config Config) (*link, error) {
	conn, err := amqpconn.Dial(ctx, node.URL, amqpconn.Config{
		Name: "msghandler", Heartbeat: config.Heartbeat, DialTimeout: dialTimeout, WriteTimeout: config.WriteTimeout,
	})
	if err != nil {
		return nil, &dialError{cause: err}
	}
	k := &link{
		connection: conn, blocked: make(chan amqp.Blocking, 16), done: make(chan struct{}), grace: config.ConfirmTimeout,
	}
	conn.NotifyBlocked(k.blocked)
	go k.watch(conn.NotifyClose(make(chan *amqp.Error, 1)))
	return k, nil
}

// watch waits for the connection's end.
func (k *link) watch(closes <-chan *amqp.Error) {
	k.lost = errors.New("the connection was closed")
	if err := <-closes; err != nil {
		k.lost = fmt.Errorf("the connection was lost: %w", err)
	}
	close(k.done)
}

// reason says why the link ended; it must have.
func (k *link) reason() error {
	<-k.done
	return k.lost
}

// open opens a channel in confirm mode with room for window messages, within openTimeout; when that is not enough
// the link is closed. onClose is told when the broker closes the channel; nil is fine.
func (k *link) open(window int, onClose func(inFlight []*flight)) (*lane, error) {
	defer k.connection.Guard(openTimeout)()
	channel, err := k.connection.Channel()
	if err == nil {
		err = channel.Confirm(false)
	}
	switch {
	case err != nil && k.connection.IsClosed():
		return nil, k.reason()
	case err != nil:
		return nil, fmt.Errorf("open a channel: %w", err)
	}
	return newLane(k, channel, window, onClose), nil
}

// close ends the connection within closeTimeout and returns when it has ended.
func (k *link) close() {
	k.connection.CloseWithin(closeTimeout)
	<-k.done
}
