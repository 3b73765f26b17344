// Package natsconn is how the coordinator and the SDKs speak to NATS JetStream: connections on which nothing waits for
// ever, messages in the form of NATS, and what the answers of streams mean.
package natsconn

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/msghandler/msghandler/internal/ground/address"
	"github.com/msghandler/msghandler/internal/ground/network"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

// Config says how to connect. Name, DialTimeout, PingInterval and WriteTimeout are required.
type Config struct {
	// Name is shown in the server's list of connections.
	Name string
	// Dial connects to a server. Nil: over the machine's network.
	Dial network.Dialer
	// TLS is used for addresses with TLS; nil is the address's own options alone.
	TLS *tls.Config
	// Handshake gets the result of each handshake of TLS with a server, or the error with which no connection came about.
	// Handshake must not block. May be nil.
	Handshake func(server string, state tls.ConnectionState, err error)
	// DialTimeout bounds reaching one server and the handshake with it.
	DialTimeout time.Duration
	// PingInterval is the interval of pings; after three intervals of silence the connection is closed.
	PingInterval time.Duration
	// WriteTimeout is how long one write to the network may take before the connection is closed.
	WriteTimeout time.Duration
	// Discovered are further servers, as Conn.DiscoveredServers of an earlier connection gave them.
	Discovered []string
	// OnError gets the errors that the server sends apart from any answer. OnClosed is called once, when the connection
	// has ended. Both may be nil.
	OnError  func(error)
	OnClosed func()
}

// dialer connects within a context, and keeps the latest error: the library's own says only that there is no server.
type dialer struct {
	ctx     context.Context //nolint:containedctx // the library dials without a context
	dial    network.Dialer
	timeout time.Duration
	mu      sync.Mutex
	server  string // the latest
	last    error
	reached bool // the latest server takes connections
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.timeout)
	defer cancel()
	conn, err := d.dial.Dial(ctx, network, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server, d.last, d.reached = addr, err, err == nil
	return conn, err
}

// explain adds the reason to the library's error.
func (d *dialer) explain(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case errors.Is(err, nats.ErrNoServers) && d.last != nil:
		return fmt.Errorf("connect: %w: %w", err, d.last)
	case errors.Is(err, nats.ErrAuthorization):
		return fmt.Errorf("connect: %w: %w", publish.ErrAccessRefused, err)
	case d.reached:
		return fmt.Errorf("connect: %w: %w", publish.ErrHandshake, err)
	}
	return fmt.Errorf("connect: %w", err)
}

// Dial connects to the first server that answers. The connection does not reconnect: the library would keep messages of
// the old connection, and send them with the new one.
func Dial(ctx context.Context, where address.NATS, config Config) (*nats.Conn, error) {
	o := nats.GetDefaultOptions()
	o.Name = config.Name
	o.AllowReconnect = false
	o.Timeout = config.DialTimeout
	o.PingInterval, o.MaxPingsOut = config.PingInterval, 2
	o.FlusherTimeout = config.WriteTimeout
	o.User, o.Password, o.Token = where.User, where.Password, where.Token
	if where.InboxPrefix != "" {
		o.InboxPrefix = where.InboxPrefix
	}
	if err := secure(&o, where, config.TLS); err != nil {
		return nil, err
	}
	scheme := "nats://"
	if where.TLS {
		scheme = "tls://"
	}
	for _, host := range where.Hosts {
		o.Servers = append(o.Servers, scheme+host)
	}
	o.Servers = append(o.Servers, config.Discovered...)
	d := &dialer{ctx: ctx, dial: config.Dial, timeout: config.DialTimeout}
	o.CustomDialer = d
	o.AsyncErrorCB = func(_ *nats.Conn, _ *nats.Subscription, err error) {
		if config.OnError != nil {
			config.OnError(err)
		}
	}
	if config.OnClosed != nil {
		o.ClosedCB = func(*nats.Conn) { config.OnClosed() }
	}
	conn, err := o.Connect()
	if config.Handshake != nil && where.TLS {
		config.Handshake(d.latest(), stateOf(conn), err)
	}
	if err != nil {
		return nil, d.explain(err)
	}
	return conn, nil
}

// latest is the server that was dialled last.
func (d *dialer) latest() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.server
}

// stateOf is the state of TLS; empty without a connection.
func stateOf(conn *nats.Conn) (state tls.ConnectionState) {
	if conn != nil {
		state, _ = conn.TLSConnectionState() // empty without TLS
	}
	return state
}

// secure sets the options for TLS and the credentials file.
func secure(o *nats.Options, where address.NATS, config *tls.Config) error {
	o.Secure = where.TLS
	if config != nil {
		o.TLSConfig = config.Clone()
	}
	var more []nats.Option
	if where.Unverified {
		more = append(more, nats.Secure(&tls.Config{InsecureSkipVerify: true})) //nolint:gosec // the address asks for it
	}
	if where.CAFile != "" {
		more = append(more, nats.RootCAs(where.CAFile))
	}
	if where.CertFile != "" {
		more = append(more, nats.ClientCert(where.CertFile, where.KeyFile))
	}
	if where.CredentialsFile != "" {
		more = append(more, nats.UserCredentials(where.CredentialsFile))
	}
	for _, set := range more {
		if err := set(o); err != nil {
			return err
		}
	}
	return nil
}

// Forbidden is the subject that a server's error forbids to publish to; empty for any other error.
func Forbidden(err error) (subject string) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return ""
	}
	_, rest, found := strings.Cut(err.Error(), `Publish to "`)
	if !found {
		return ""
	}
	subject, _, _ = strings.Cut(rest, `"`)
	return subject
}
