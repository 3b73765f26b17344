// Package amqpconn opens connections to RabbitMQ whose calls always end.
//
// amqp091-go has no time limit for a write, for a call such as basic.consume, or for closing: a broker under an alarm
// stops reading, and a broker that sends only heartbeats keeps the caller waiting. Here each write has a time limit,
// and Guard and CloseWithin end the connection of a broker that takes too long.
package amqpconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/network"
)

// Config says how to connect. All but Dial, TLS and Handshake must be set.
type Config struct {
	// Name is the connection's name on the broker.
	Name string
	// Dial connects to the node. Nil: over the machine's network.
	Dial network.Dialer
	// TLS is used for amqps; nil is Go's default.
	TLS *tls.Config
	// Handshake gets the result of each handshake of TLS with a server, or the error with which no connection came about.
	// Handshake must not block. May be nil.
	Handshake func(server string, state tls.ConnectionState, err error)
	// Heartbeat is the interval of heartbeats, at least 1 s; a peer that is silent for three intervals is gone. A
	// heartbeat in the URL takes precedence.
	Heartbeat time.Duration
	// DialTimeout bounds reaching the node and the handshakes with it.
	DialTimeout time.Duration
	// WriteTimeout bounds each write to the network; a slower write ends the connection.
	WriteTimeout time.Duration
}

// Conn is a connection to a broker.
type Conn struct {
	*amqp.Connection
	raw *conn
}

// Dial connects to a node within Config.DialTimeout, or until the context ends.
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
	node := ""
	properties := amqp.NewConnectionProperties()
	properties.SetClientConnectionName(config.Name)
	logins, err := logins(url, properties)
	if err != nil {
		return nil, err
	}
	connection, err := amqp.DialConfig(url, amqp.Config{
		Heartbeat: config.Heartbeat, Properties: properties, SASL: logins,
		// A copy, because the library writes the node's name into the configuration, which the next node would inherit.
		TLSClientConfig: config.TLS.Clone(),
		Dial: func(network, address string) (net.Conn, error) {
			node = address
			dialled, err := config.Dial.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			c := newConn(dialled, config.WriteTimeout)
			raw.Store(c)
			// The library removes this deadline when the connection is open.
			return c, c.SetDeadline(time.Now().Add(config.DialTimeout))
		},
	})
	config.noteHandshake(node, connection, err)
	if err != nil {
		hangUp()
		if raw.Load() != nil {
			err = explain(ctx, err)
		}
		return nil, err
	}
	return &Conn{Connection: connection, raw: raw.Load()}, nil
}

// noteHandshake reports the handshake of TLS, if there was one.
func (c *Config) noteHandshake(node string, connection *amqp.Connection, err error) {
	if c.Handshake == nil {
		return
	}
	var state tls.ConnectionState
	if err == nil {
		state = connection.ConnectionState()
	}
	c.Handshake(node, state, err)
}

// login asks the node for the reason when it refuses the login. Without the capability a node closes the connection
// without a word, as it does when it starts, stops or has too much to do.
type login struct {
	amqp.Authentication
	properties amqp.Table
}

// Response implements amqp.Authentication. The library sets the capabilities, and takes no others, right before
// it asks for the response.
func (l login) Response() string {
	if capabilities, is := l.properties["capabilities"].(amqp.Table); is {
		capabilities["authentication_failure_close"] = true
	}
	return l.Authentication.Response()
}

// logins are the ways to log in that a URL allows.
func logins(url string, properties amqp.Table) (all []amqp.Authentication, err error) {
	uri, err := amqp.ParseURI(url)
	if err != nil {
		return nil, err
	}
	if len(uri.AuthMechanism) == 0 {
		uri.AuthMechanism = []string{"PLAIN"}
	}
	for _, mechanism := range uri.AuthMechanism {
		var of amqp.Authentication
		switch strings.ToUpper(mechanism) {
		case "PLAIN":
			of = uri.PlainAuth()
		case "AMQPLAIN":
			of = uri.AMQPlainAuth()
		case "EXTERNAL":
			of = &amqp.ExternalAuth{}
		default:
			return nil, fmt.Errorf("the auth_mechanism %q is unknown; write PLAIN, AMQPLAIN or EXTERNAL", mechanism)
		}
		all = append(all, login{of, properties})
	}
	return all, nil
}

// ErrHandshake says that a node was reached, and did not open the connection in time, or not at all. That is no word
// about user, password or virtual host.
var ErrHandshake = errors.New("the connection ended during the handshake")

// explain puts ErrHandshake in the place of the library's guess where the node has given no reason: the library takes
// each end of the handshake for a refusal of the password or of the virtual host.
func explain(ctx context.Context, err error) error {
	var own *amqp.Error
	switch {
	case errors.As(err, &own) && own.Server:
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%w: no answer in time", ErrHandshake)
	case errors.Is(err, amqp.ErrCredentials), errors.Is(err, amqp.ErrVhost):
		return ErrHandshake
	case own != nil:
		return fmt.Errorf("%w: %w", ErrHandshake, err)
	}
	return err
}

// Guard hangs up unless stop is called in time: calls that wait for the broker then return an error.
func (c *Conn) Guard(within time.Duration) (stop func() bool) {
	return time.AfterFunc(within, c.HangUp).Stop
}

// HangUp ends the connection without a closing handshake.
func (c *Conn) HangUp() { c.raw.hangUp() }

// Answer waits for the broker's answer to a publishing, or until the context ends. An answer that has already arrived
// is always returned: otherwise an acknowledged message would be published again.
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

// RejectsExchange reports whether the broker closed a channel because of a message's exchange. A missing permission
// for the routing key concerns the message only: another message to the exchange may pass.
func RejectsExchange(closed *amqp.Error) bool {
	return closed.Code == amqp.NotFound ||
		closed.Code == amqp.AccessRefused && !strings.Contains(closed.Reason, "access to topic '")
}

// CloseWithin closes the connection with a handshake, within the given time. A missing answer is no error: the broker
// notices the closed connection.
func (c *Conn) CloseWithin(within time.Duration) {
	// CloseDeadline alone may wait longer: each heartbeat of a broker that does not answer moves its deadline.
	defer c.Guard(within)()
	_ = c.CloseDeadline(time.Now().Add(within))
}
