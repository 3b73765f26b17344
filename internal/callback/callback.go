// Package callback calls producers: Confirm asks for the verdicts on their messages, DeleteBusiness deletes business
// markers.
//
// Callback targets are untrusted data. A target is dialled only when it has the allowed form and matches the
// allow-list. The addresses of its name are checked again when a socket is connected.
package callback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/certs"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// Config says which producers may be called, and how.
type Config struct {
	// Allow holds globs on host:port that may be dialled, such as *.orders.svc:9000. None: no target is allowed.
	Allow []string
	// Networks holds the CIDRs of allowed addresses. None: all addresses except loopback, link-local, multicast and
	// unspecified addresses. A literal address that Allow names as an address is always allowed.
	Networks []string
	// Targets holds the callback targets of producers that send no target, by the producer's name.
	Targets map[string]string
	// Moved holds pairs of an old and a new target of producers that have moved.
	Moved [][2]string
	// Timeout bounds each call. Required.
	Timeout time.Duration
	// MaxBatch is how many ids go into one call, at most 500; larger requests are split. Required.
	MaxBatch int
	// Secure says whether a producer is called with TLS, for which Credentials must be there. Default: none is.
	Secure      func(producer string) bool
	Credentials credentials.TransportCredentials
	// Token returns the bearer token to show to a producer; empty: no token. Default: no producer gets a token. Every
	// allowed target of a producer can learn the producer's token.
	Token func(producer string) string
	// Logger gets contradictory answers. Default slog.Default().
	Logger *slog.Logger

	// Tests choose fewer targets, and how names are resolved.
	maxTargets  int
	dialOptions []grpc.DialOption
}

// maxTargets is how many targets stay connected; the least recently used connections are closed.
const maxTargets = 512

// contractBatch is how many ids the contract allows in a Confirm.
const contractBatch = 500

// Client implements halfmsg.Callbacks over gRPC. A Client is safe for concurrent use.
type Client struct {
	config Config
	rules  rules
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
	if config.Token == nil {
		config.Token = func(string) string { return "" }
	}
	allowed, err := newRules(config.Allow, config.Networks)
	if err != nil {
		return nil, err
	}
	c := &Client{config: config, rules: allowed, configured: map[string]target{}, moved: map[target]target{}}
	for producer, text := range config.Targets {
		if c.configured[producer], err = c.read(text); err != nil {
			return nil, fmt.Errorf("target of producer %s: %w", producer, err)
		}
	}
	if err := c.move(config.Moved); err != nil {
		return nil, err
	}
	c.conns = newConns(config.maxTargets, func(t target) (*grpc.ClientConn, error) {
		return grpc.NewClient(t.String(), c.dialOptions(t)...)
	})
	return c, nil
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
		err = c.rules.check(t)
	}
	return t, err
}

// Close ends all connections, and the calls under way with them.
func (c *Client) Close() { c.conns.close() }

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
	t, err := c.find(producer, named)
	if err != nil {
		return target{}, err
	}
	if to, moved := c.moved[t]; moved {
		t = to
	}
	t.secure = c.config.Secure(producer)
	return t, c.rules.check(t)
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

// Confirm implements halfmsg.Callbacks.
func (c *Client) Confirm(
	ctx context.Context, to halfmsg.Target, ids []string, final bool,
) (map[string]halfmsg.Verdict, error) {
	verdicts := make(map[string]halfmsg.Verdict, len(ids))
	err := c.call(ctx, "Confirm", to, ids, func(ctx context.Context, conn *conn, ids []string) error {
		request := &msghandlerv1.ConfirmRequest{Producer: to.Producer, Ids: ids, Final: final}
		answer, err := msghandlerv1.NewProducerServiceClient(conn).Confirm(ctx, request)
		if err != nil {
			return err
		}
		if odd := judge(verdicts, ids, answer.GetConfirmations()); odd.any() {
			c.config.Logger.WarnContext(ctx, "a producer's answer to Confirm is odd", "producer", to.Producer,
				"target", to.Address, "contradictory", odd.contradictory, "not_asked", odd.notAsked, "no_verdict", odd.noVerdict)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return verdicts, nil
}

// DeleteBusiness implements halfmsg.Callbacks.
func (c *Client) DeleteBusiness(ctx context.Context, to halfmsg.Target, ids []string) error {
	return c.call(ctx, "DeleteBusiness", to, ids, func(ctx context.Context, conn *conn, ids []string) error {
		request := &msghandlerv1.DeleteBusinessRequest{Producer: to.Producer, Ids: ids}
		_, err := msghandlerv1.NewProducerServiceClient(conn).DeleteBusiness(ctx, request)
		return err
	})
}

// Open returns a client for a producer's own answers, for doctor, which examines them: unjudged, and with requests of
// any form. Deadlines are the caller's. release must be called when the last call has ended.
func (c *Client) Open(to halfmsg.Target) (producer msghandlerv1.ProducerServiceClient, release func(), err error) {
	t, err := c.resolve(to.Producer, to.Address)
	if err != nil {
		return nil, nil, err
	}
	conn, err := c.conns.get(t)
	if err != nil {
		return nil, nil, err
	}
	shown := &withToken{ClientConnInterface: conn, token: func() string { return c.config.Token(to.Producer) }}
	return msghandlerv1.NewProducerServiceClient(shown), func() { c.conns.release(conn) }, nil
}

// call makes calls to a target, each with a batch of the ids and a deadline of its own. The target is checked again:
// the configuration may have changed since the target was stored.
func (c *Client) call(
	ctx context.Context, method string, to halfmsg.Target, ids []string,
	do func(ctx context.Context, conn *conn, ids []string) error,
) error {
	t, err := c.resolve(to.Producer, to.Address)
	if err != nil {
		return err
	}
	conn, err := c.conns.get(t)
	if err != nil {
		return fmt.Errorf("%s of producer %s at %s: %w", method, to.Producer, t, err)
	}
	defer c.conns.release(conn)
	ctx = certs.WithToken(ctx, c.config.Token(to.Producer))
	for part := range slices.Chunk(ids, c.config.MaxBatch) {
		if err := c.once(ctx, conn, part, do); err != nil {
			return &CallError{
				Method: method, Producer: to.Producer, Target: t.String(), Timeout: c.config.Timeout,
				Reached: reached(status.Code(err)), err: err,
			}
		}
	}
	return nil
}

func (c *Client) once(
	ctx context.Context, conn *conn, ids []string, do func(ctx context.Context, conn *conn, ids []string) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, c.config.Timeout)
	defer cancel()
	return do(ctx, conn, ids)
}

// CallError says that a call to a producer failed. No code is ever a verdict, NOT_FOUND and UNIMPLEMENTED included.
type CallError struct {
	// Method is Confirm or DeleteBusiness.
	Method string
	// Producer is the producer's name.
	Producer string
	// Target is the dialled target.
	Target string
	// Timeout is the time limit of the call.
	Timeout time.Duration
	// Reached says that the producer was reached and failed the call itself, so that a message may be the reason.
	Reached bool

	err error
}

// Error names the target and the status code. The producer's text is cut and made printable.
func (e *CallError) Error() string {
	st := status.Convert(e.err)
	said := printable(st.Message())
	switch {
	case st.Code() == codes.DeadlineExceeded && isTimeout(said):
		said = fmt.Sprintf("no answer within %s", e.Timeout)
	case st.Code() == codes.DeadlineExceeded:
		said = fmt.Sprintf("no answer within %s (%s)", e.Timeout, said)
	case e.Unresolved():
		said = "the name does not resolve here, or has no address"
	case st.Code() == codes.Unimplemented:
		said += "; does that server serve msghandler.v1.ProducerService?"
	case e.Refused():
		said += "; give this coordinator a token (callbacks.token_file) or certificate (callbacks.tls_cert) " +
			"that the producer accepts"
	}
	return fmt.Sprintf("%s of producer %s at %s: %s: %s", e.Method, e.Producer, e.Target, st.Code(), said)
}

// isTimeout reports whether a status text says only that time was over. The texts differ with the side that noticed
// first. As causes of a message they must be equal.
func isTimeout(said string) bool {
	return said == context.DeadlineExceeded.Error() || strings.HasPrefix(said, "stream terminated by RST_STREAM")
}

// Unresolved reports that the target's name has no address. gRPC gives no other sign than its text.
func (e *CallError) Unresolved() bool {
	return e.Code() == codes.Unavailable && strings.Contains(status.Convert(e.err).Message(), "no children to pick from")
}

// Refused reports that the producer does not accept the caller as a coordinator.
func (e *CallError) Refused() bool {
	return e.Code() == codes.Unauthenticated || e.Code() == codes.PermissionDenied
}

// Unwrap gives the gRPC error.
func (e *CallError) Unwrap() error { return e.err }

// Code is the gRPC status code of the failure.
func (e *CallError) Code() codes.Code { return status.Code(e.err) }

// Is reports that the error is halfmsg.ErrCallFailed where the producer was reached.
func (e *CallError) Is(target error) bool {
	return target == halfmsg.ErrCallFailed && e.Reached
}

// reached reports whether a producer answers a code because of a message. The other codes come from the network, a
// deadline, a server without the service, or a refusal of the caller.
func reached(code codes.Code) bool {
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.ResourceExhausted, codes.Unimplemented,
		codes.Unauthenticated, codes.PermissionDenied:
		return false
	}
	return true
}

// maxSaid is how much of a producer's own words an error repeats.
const maxSaid = 300

func printable(s string) string {
	if len(s) > maxSaid {
		s = s[:maxSaid] + "..."
	}
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
}
