package publish

import (
	"cmp"
	"crypto/tls"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/network"
)

// Config says how to publish, to a broker of any kind. URL is required; zero values of the others take the defaults.
type Config struct {
	// URL is the address of one broker or cluster. Several nodes stand in it as the kind of the broker takes them.
	URL string
	// Present returns the URL of now for each connection: a password may have been rotated since the start. Nil: URL.
	Present func() string
	// Dial connects to the broker. Nil: over the machine's network.
	Dial network.Dialer
	// TLS is used where the URL asks for TLS and names no files; nil is Go's default.
	TLS *tls.Config
	// Handshake gets the result of each handshake of TLS with a server, or the error with which no connection came about.
	// Handshake must not block. May be nil.
	Handshake func(server string, state tls.ConnectionState, err error)
	// Name is the name of the connection on the broker. Default "msghandler".
	Name string
	// ConfirmTimeout bounds Publish: a message without an answer by then is Unsure. Messages are sent in the first half,
	// so that each has at least the other half to be acknowledged. Default 10 s.
	ConfirmTimeout time.Duration
	// Window is how many messages may be in flight at once. Default 1000.
	Window int
	// ProbePauses are the waits before each probe of a stalled route, for a caller without a schedule of its own for the
	// messages of such a route. Nil: none.
	ProbePauses backoff.Steps
	// Logger gets a line for each change of the connection. Default slog.Default().
	Logger *slog.Logger

	// Heartbeat is how often the publisher looks whether the broker lives; after three heartbeats of silence the
	// connection is lost. Default 5 s.
	Heartbeat time.Duration
	// WriteTimeout is how long one write to the network, or the answer to a heartbeat, may take before the connection is
	// lost. Default 3 s.
	WriteTimeout time.Duration
}

// PresentURL is the URL for the next connection.
func (c Config) PresentURL() string {
	if c.Present == nil {
		return c.URL
	}
	return c.Present()
}

// Complete sets the defaults.
func (c Config) Complete() Config {
	c.Name = cmp.Or(c.Name, "msghandler")
	c.ConfirmTimeout = cmp.Or(c.ConfirmTimeout, 10*time.Second)
	c.Window = cmp.Or(c.Window, 1000)
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Heartbeat = cmp.Or(c.Heartbeat, 5*time.Second)
	c.WriteTimeout = cmp.Or(c.WriteTimeout, 3*time.Second)
	return c
}
