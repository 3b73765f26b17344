// Package callback calls producers: Confirm asks for the verdicts on their messages, DeleteBusiness deletes business
// markers.
//
// Callback targets are untrusted data. A target is dialled only when it has the allowed form and matches the
// allow-list. The addresses of its name are checked again when a socket is connected.
package callback

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/internal/ground/network"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/loglimit"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Config says which producers may be called, and how.
type Config struct {
	// Allow holds globs on host:port that may be dialled, such as *.orders.svc:9000. None: no target is allowed.
	Allow []string
	// Networks holds the CIDRs of allowed addresses. None: all public addresses. A literal address that Allow names as an
	// address needs no network. Reserved addresses, such as those of cloud metadata, are never allowed.
	Networks []string
	// Own returns the addresses at which this coordinator listens, and which it does not call. Default: none.
	Own func() []netip.AddrPort
	// Targets holds the callback targets of producers that send no target, by the producer's name.
	Targets map[string]string
	// Moved holds pairs of an old and a new target of producers that have moved.
	Moved [][2]string
	// Dial connects to addresses, without a look-up of names. Nil: over the machine's network.
	Dial network.Dialer
	// Timeout bounds each call. Required.
	Timeout time.Duration
	// MaxBatch is how many ids go into one call, at most 500; larger requests are split. Required.
	MaxBatch int
	// Secure says whether a producer is called with TLS, for which Credentials must be there. Default: none is.
	Secure      func(producer string) bool
	Credentials credentials.TransportCredentials
	// ClientTLS returns the TLS configuration of a connection to a URL of https. Default: the authorities of the system.
	ClientTLS func() *tls.Config
	// Handshake gets the result of each handshake of TLS with a target, or its error, and must not block. Default: none.
	Handshake func(target string, state tls.ConnectionState, err error)
	// Token returns the bearer token to show to a producer; empty: no token. Default: no producer gets a token. Every
	// allowed target of a producer can learn the producer's token.
	Token func(producer string) string
	// Attending returns the client of a producer that is asked over its own streams. Nil: no such producer can be called.
	Attending func(producer string) msghandlerv1.ProducerServiceClient
	// Split hears of an answer from another marker store than the messages name; empty is a store without an identity.
	// Split must not block. May be nil.
	Split func(producer, named, answered string)
	// Logger gets contradictory answers. Default slog.Default().
	Logger *slog.Logger

	// Tests choose less patience, fewer targets, and how names are resolved: for gRPC, and for URLs.
	muteAfter   time.Duration
	maxTargets  int
	dialOptions []grpc.DialOption
	resolver    *net.Resolver
}

// maxTargets is how many targets stay connected; the least recently used connections are closed.
const maxTargets = 512

// contractBatch is how many ids the contract allows in a Confirm.
const contractBatch = 500

// Client implements halfmsg.Callbacks over the transport of each target. A Client is safe for concurrent use.
type Client struct {
	config Config
	// failures gathers the log lines about answers.
	failures *loglimit.Gatherer
	// rules are those of now; Allow replaces them.
	rules atomic.Pointer[rules]
	// configured holds Config.Targets, parsed.
	configured map[string]target
	// moved holds Config.Moved, parsed.
	moved map[target]target
	conns *conns
}

var _ halfmsg.Callbacks = (*Client)(nil)

// New checks the configuration and returns a client without connections. Close must follow.
func New(config Config) (*Client, error) {
	if config.Timeout <= 0 || config.MaxBatch <= 0 {
		return nil, errors.New("callback: Timeout and MaxBatch are required")
	}
	config.MaxBatch = min(config.MaxBatch, contractBatch)
	config.maxTargets = cmp.Or(config.maxTargets, maxTargets)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	if config.Secure == nil {
		config.Secure = func(string) bool { return false }
	}
	if config.ClientTLS == nil {
		config.ClientTLS = func() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }
	}
	if config.Handshake == nil {
		config.Handshake = func(string, tls.ConnectionState, error) {}
	}
	if config.Split == nil {
		config.Split = func(string, string, string) {}
	}
	if config.Token == nil {
		config.Token = func(string) string { return "" }
	}
	allowed, err := newRules(config.Allow, config.Networks)
	if err != nil {
		return nil, err
	}
	if config.Own != nil {
		allowed.own = config.Own
	}
	c := &Client{
		config: config, failures: loglimit.NewGatherer(config.Logger), configured: map[string]target{},
		moved: map[target]target{},
	}
	c.rules.Store(&allowed)
	for producer, text := range config.Targets {
		t, err := c.read(text)
		if err == nil {
			_, err = c.secured(t, producer)
		}
		if err != nil {
			return nil, fmt.Errorf("target of producer %s: %w", producer, err)
		}
		c.configured[producer] = t
	}
	if err := c.move(config.Moved); err != nil {
		return nil, err
	}
	c.conns = newConns(config.maxTargets, c.open)
	return c, nil
}

// open returns the transport to a target of any kind. Nothing is dialled yet.
func (c *Client) open(t target) (transport, error) {
	switch t.kind {
	case kindGRPC:
		return c.openGRPC(t)
	case kindHTTP:
		return c.openHTTP(t), nil
	case kindAttend:
		return c.openAttend(t)
	}
	return nil, fmt.Errorf("no transport to targets of kind %d", t.kind)
}

// move notes moved targets. A chain of moves is refused: the configuration must name the current target.
func (c *Client) move(pairs [][2]string) error {
	for _, pair := range pairs {
		from, err := parseTarget(pair[0])
		if err != nil {
			return err
		}
		if _, twice := c.moved[from]; twice {
			return fmt.Errorf("%s has moved to two places: name the one where it is now", pair[0])
		}
		if c.moved[from], err = c.read(pair[1]); err != nil {
			return fmt.Errorf("target that %s has moved to: %w", pair[0], err)
		}
	}
	for from, to := range c.moved {
		if _, again := c.moved[to]; again {
			return fmt.Errorf("%s has moved to %s, and that has moved itself: name where it is now", from, to)
		}
	}
	return nil
}

// read parses and checks a configured target.
func (c *Client) read(text string) (target, error) {
	t, err := parseTarget(text)
	if err == nil {
		err = c.rules.Load().check(t)
	}
	return t, err
}

// Allow replaces Config.Allow and Config.Networks. It fails, and changes nothing, where a configured target would be
// forbidden.
func (c *Client) Allow(allow, networks []string) error {
	allowed, err := newRules(allow, networks)
	if err != nil {
		return err
	}
	if c.config.Own != nil {
		allowed.own = c.config.Own
	}
	for producer, t := range c.configured {
		if err := allowed.check(t); err != nil {
			return fmt.Errorf("target of producer %s: %w", producer, err)
		}
	}
	for from, to := range c.moved {
		if err := allowed.check(to); err != nil {
			return fmt.Errorf("target that %s has moved to: %w", from, err)
		}
	}
	c.rules.Store(&allowed)
	return nil
}

// Close ends all connections, and the calls under way with them.
func (c *Client) Close() {
	c.conns.close()
	c.failures.Flush()
}

// Resolve returns the callback target of a producer in canonical form: the target of its request, or the configured
// target where named is empty. Resolve fails with halfmsg.ErrNoTarget, ErrBadTarget or ErrForbidden, in words that are
// fit for the caller. Nothing is dialled or looked up.
func (c *Client) Resolve(producer, named string) (string, error) {
	t, err := c.resolve(producer, named)
	if err != nil {
		return "", err
	}
	return t.String(), nil
}

func (c *Client) resolve(producer, named string) (target, error) {
	if t, is, err := c.resolveAttend(producer, named); is {
		return t, err
	}
	t, err := c.find(producer, named)
	if err != nil {
		return target{}, err
	}
	if to, moved := c.moved[t]; moved {
		t = to
	}
	if t, err = c.secured(t, producer); err != nil {
		return target{}, err
	}
	return t, c.rules.Load().check(t)
}

// secured decides whether a target is called with TLS. A URL decides by its scheme, and a producer that is called with
// TLS has no other URL than one of https.
func (c *Client) secured(t target, producer string) (target, error) {
	secure := c.config.Secure(producer)
	if t.kind != kindHTTP {
		t.secure = secure
		return t, nil
	}
	if secure && !t.secure {
		return target{}, fmt.Errorf("%w: producer %s is called with TLS (callbacks.tls or producers.%s.tls); write https://",
			halfmsg.ErrForbidden, producer, producer)
	}
	return t, nil
}

// find returns the named target, or else the configured target.
func (c *Client) find(producer, named string) (target, error) {
	if named != "" {
		return parseTarget(named)
	}
	t, ok := c.configured[producer]
	if !ok {
		return target{}, fmt.Errorf("%w: the request names none, and none is configured for producer %s",
			halfmsg.ErrNoTarget, producer)
	}
	return t, nil
}
