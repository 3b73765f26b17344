package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// dialTimeout bounds reaching a node and the handshakes with it.
	dialTimeout = 10 * time.Second
	// openTimeout bounds opening a channel. A broker that does not answer that is not there, whatever TCP says.
	openTimeout = 5 * time.Second
	// closeTimeout bounds the farewell to a broker, which one under an alarm never answers.
	closeTimeout = time.Second
)

// endpoint is where a broker is.
type endpoint struct {
	url string
	// host is host:port, which may be shown.
	host string
}

// dialError says that no connection came about.
type dialError struct{ cause error }

func (e *dialError) Error() string { return "connect: " + e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

// Is says of ErrTurnedAway whether the broker itself refused the handshake.
func (e *dialError) Is(target error) bool {
	var refused *amqp.Error
	return target == ErrTurnedAway && errors.As(e.cause, &refused)
}

// ErrTurnedAway says that a broker answers and does not let us in: the user, the password or the virtual host is wrong.
var ErrTurnedAway = errors.New("the broker does not let us in")

// parseEndpoints checks the URLs. Its errors do not wrap those of the parser, which repeat parts of the URL and with
// them the password.
func parseEndpoints(urls []string) ([]endpoint, error) {
	if len(urls) == 0 {
		return nil, errors.New("no URL of a broker")
	}
	endpoints := make([]endpoint, len(urls))
	for i, url := range urls {
		uri, err := amqp.ParseURI(url)
		if err != nil {
			scheme, _, _ := strings.Cut(url, "://")
			if scheme != "amqp" && scheme != "amqps" {
				return nil, fmt.Errorf("URL %d of the broker begins with neither amqp:// nor amqps://", i+1)
			}
			return nil, fmt.Errorf("URL %d of the broker is not of the form %s://user:password@host:port/vhost; "+
				"special characters in user and password must be percent-encoded", i+1, scheme)
		}
		endpoints[i] = endpoint{url: url, host: net.JoinHostPort(uri.Host, strconv.Itoa(uri.Port))}
	}
	return endpoints, nil
}

// link is one connection.
type link struct {
	connection *amqp.Connection
	// raw is the connection beneath it. Closing it ends everything that waits for the broker.
	raw net.Conn
	// blocked gets the broker's alarms.
	blocked chan amqp.Blocking
	// done is closed when the connection has ended and lost is set.
	done chan struct{}
	lost error
	// grace is how long a lane that is out of use stays open for answers.
	grace time.Duration
}

// dial connects, within dialTimeout.
func dial(ctx context.Context, end endpoint, config Config) (*link, error) {
	k := &link{blocked: make(chan amqp.Blocking, 16), done: make(chan struct{}), grace: config.ConfirmTimeout}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var raw atomic.Pointer[timedConn]
	// The library knows no context for its handshakes.
	stop := context.AfterFunc(ctx, func() {
		if conn := raw.Load(); conn != nil {
			_ = conn.Close()
		}
	})
	defer stop()
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName("msghandler")
	connection, err := amqp.DialConfig(end.url, amqp.Config{
		Heartbeat:  config.Heartbeat,
		Properties: properties,
		Dial: func(network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			timed := &timedConn{Conn: conn, timeout: config.WriteTimeout}
			raw.Store(timed)
			return timed, conn.SetDeadline(time.Now().Add(dialTimeout))
		},
	})
	if err != nil {
		if conn := raw.Load(); conn != nil {
			_ = conn.Close()
		}
		return nil, &dialError{cause: err}
	}
	k.connection, k.raw = connection, raw.Load()
	connection.NotifyBlocked(k.blocked)
	go k.watch(connection.NotifyClose(make(chan *amqp.Error, 1)))
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
	guard := time.AfterFunc(openTimeout, func() { _ = k.raw.Close() })
	defer guard.Stop()
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
	// CloseDeadline alone can be kept waiting: each heartbeat of a broker under an alarm moves its deadline.
	guard := time.AfterFunc(closeTimeout, func() { _ = k.raw.Close() })
	defer guard.Stop()
	// An error means that the broker did not hear the farewell. It will notice.
	_ = k.connection.CloseDeadline(time.Now().Add(closeTimeout))
	<-k.done
}

// timedConn gives each write a time limit. Under an alarm a broker stops reading; the library would then hang in a
// write with its locks held, whatever the context says.
type timedConn struct {
	net.Conn
	timeout time.Duration
}

// Write writes within the time limit.
func (c *timedConn) Write(b []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}
