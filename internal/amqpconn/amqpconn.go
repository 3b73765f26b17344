// Package amqpconn opens connections to RabbitMQ on which nothing waits for ever.
//
// amqp091-go knows no time limit for a write, for a question such as basic.consume, or for a farewell: a broker under an
// alarm stops reading, and a broker that answers nothing but heartbeats keeps the caller waiting. Here each write has a
// time limit, and Guard and Close hang up on a broker that takes too long.
package amqpconn

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Config says how to connect. All but TLS must be set.
type Config struct {
	// Name is what the broker shows as the connection's name.
	Name string
	// TLS is used for amqps; nil is Go's default.
	TLS *tls.Config
	// Heartbeat is the interval of heartbeats, at least 1 s; a peer that is silent for three of them is gone. One in the
	// URL wins.
	Heartbeat time.Duration
	// DialTimeout bounds reaching the node and the handshakes with it.
	DialTimeout time.Duration
	// WriteTimeout bounds each write to the network; the connection ends with one that takes longer.
	WriteTimeout time.Duration
}

// Conn is a connection to a broker.
type Conn struct {
	*amqp.Connection
	raw *conn
}

// Dial connects to one node within Config.DialTimeout, or until the context ends.
func Dial(ctx context.Context, url string, config Config) (*Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, config.DialTimeout)
	defer cancel()
	var raw atomic.Pointer[conn]
	hangUp := func() {
		if c := raw.Load(); c != nil {
			c.hangUp()
		}
	}
	stop := context.AfterFunc(ctx, hangUp) // the library knows no context for its handshakes
	defer stop()
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(config.Name)
	connection, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat: config.Heartbeat, Properties: properties,
		// A copy, as the library writes the name of the node into it: the next node would be taken for this one.
		TLSClientConfig: config.TLS.Clone(),
		Dial: func(network, address string) (net.Conn, error) {
			dialled, err := (&net.Dialer{}).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			c := newConn(dialled, config.WriteTimeout)
			raw.Store(c)
			// The library lifts this one when the connection is open.
			return c, c.SetDeadline(time.Now().Add(config.DialTimeout))
		},
	})
	if err != nil {
		hangUp()
		return nil, err
	}
	return &Conn{Connection: connection, raw: raw.Load()}, nil
}

// Guard hangs up when stop is not called within that time: whatever waits for the broker then gets an error.
func (c *Conn) Guard(within time.Duration) (stop func() bool) {
	return time.AfterFunc(within, c.HangUp).Stop
}

// HangUp ends the connection without a farewell.
func (c *Conn) HangUp() { c.raw.hangUp() }

// Answer waits for the broker's answer to a publishing, or until the context ends. An answer that is there already is never
// passed over: what was acknowledged would be published once more.
func Answer(ctx context.Context, to *amqp.DeferredConfirmation) (acknowledged bool, err error) {
	select {
	case <-to.Done():
		return to.Acked(), nil
	case <-ctx.Done():
	}
	select {
	case <-to.Done():
		return to.Acked(), nil
	default:
		return false, ctx.Err()
	}
}

// RejectsExchange says whether the broker closed a channel because of a message's exchange. A permission that fails for
// the routing key concerns one message: another message to the exchange may pass.
func RejectsExchange(closed *amqp.Error) bool {
	return closed.Code == amqp.NotFound ||
		closed.Code == amqp.AccessRefused && !strings.Contains(closed.Reason, "access to topic '")
}

// CloseWithin says farewell and ends the connection, within that time. That the broker did not hear it is no error: it
// notices.
func (c *Conn) CloseWithin(within time.Duration) {
	// CloseDeadline alone can be kept waiting: each heartbeat of a broker that does not answer moves its deadline.
	defer c.Guard(within)()
	_ = c.CloseDeadline(time.Now().Add(within))
}
