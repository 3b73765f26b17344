// Package callback calls producers back: it asks them for the fate of their messages and tells them which business
// markers they may forget.
//
// Callback targets are data from outside. A target is dialled only when it is of the one allowed form and matches the
// allow-list, and what its name resolves to is checked again at the very moment a socket is connected.
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
	// Networks holds the CIDRs that a connected address must lie in. None: all but loopback, link-local, multicast and
	// unspecified addresses. A literal address that Allow names as an address needs no more.
	Networks []string
	// Targets holds the callback targets of producers that send none, by the producer's name.
	Targets map[string]string
	// Moved holds targets that producers have moved from, and where they are called instead.
	Moved [][2]string
	// Timeout bounds each call. Required.
	Timeout time.Duration
	// MaxBatch is how many ids go into one call, at most 500; larger requests are split. Required.
	MaxBatch int
	// Secure says whether a producer is called with TLS, for which Credentials must be there. Default: none is.
	Secure      func(producer string) bool
	Credentials credentials.TransportCredentials
	// Token gives the bearer token that a producer is shown; empty: none. Default: nobody is shown one. Everybody who
	// may be named as a producer's target can learn its token.
	Token func(producer string) string
	// Logger hears of answers that contradict themselves. Default slog.Default().
	Logger *slog.Logger

	// Tests choose fewer targets, and how names are resolved.
	maxTargets  int
	dialOptions []grpc.DialOption
}

// maxTargets is how many targets stay connected. Of more, the connections used longest ago are closed.
const maxTargets = 512

// contractBatch is how many ids the contract allows in one Confirm.
const contractBatch = 500

// Client implements halfmsg.Callbacks over gRPC. It is safe for concurrent use.
type Client struct {
	config Config
	rules  rules
	// configured holds Config.Targets, read.
	configured map[string]target
	// moved holds Config.Moved, read.
	moved map[target]target
	conns *conns
}

var _ halfmsg.Callbacks = (*Client)(nil)

// New checks the configuration and returns a client that has not connected to anything yet. Close ends it.
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

// move notes who has moved. Nobody may have moved twice: which of the places it is now is the configuration's to say.
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

// read reads a target that the configuration names.
func (c *Client) read(text string) (target, error) {
	t, err := parseTarget(text)
	if err == nil {
		err = c.rules.check(t)
	}
	return t, err
}

// Close ends all connections, and the calls under way with them.
func (c *Client) Close() { c.conns.close() }

// Resolve says where a producer is called back: at the target that its request names, or, where that is empty, at the
// one configured for it. The answer has one canonical form. It fails with halfmsg.ErrNoTarget, ErrBadTarget or
// ErrForbidden, in words that are fit for the caller. Nothing is dialled or looked up.
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

// find gives the target that was named, or else the one that is configured.
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

// Open gives a producer's own answers, for whoever examines them rather than relies on them: unjudged, and of
// questions of any form. Deadlines are the caller's. release must be called when the last call has ended.
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

// call makes one or more calls to a target, each with a batch of the ids and a deadline of its own. The target is
// checked again: it was stored some time ago, and the configuration may say otherwise by now.
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
			return &UnreachableError{
				Method: method, Producer: to.Producer, Target: t.String(), Timeout: c.config.Timeout, err: err,
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

// UnreachableError says that a producer gave no answer. Whatever the code, NOT_FOUND and UNIMPLEMENTED included, it is
// never a verdict.
type UnreachableError struct {
	// Method is Confirm or DeleteBusiness.
	Method string
	// Producer is the producer's name.
	Producer string
	// Target is what was dialled.
	Target string
	// Timeout is how long an answer was waited for.
	Timeout time.Duration

	err error
}

// Error names the target and the status code. What the producer said is cut short and made printable.
func (e *UnreachableError) Error() string {
	st := status.Convert(e.err)
	said := printable(st.Message())
	switch {
	case st.Code() == codes.DeadlineExceeded && isLate(said):
		said = fmt.Sprintf("no answer within %s", e.Timeout)
	case st.Code() == codes.DeadlineExceeded:
		said = fmt.Sprintf("no answer within %s (%s)", e.Timeout, said)
	case e.Unresolved():
		said = "the name does not resolve here, or has no address"
	case st.Code() == codes.Unimplemented:
		said += "; does that server serve msghandler.v1.ProducerService?"
	case e.Refused():
		said += "; give this coordinator a token (callbacks.token_file) or certificate (callbacks.tls_cert) that the producer accepts"
	}
	return fmt.Sprintf("%s of producer %s at %s: %s: %s", e.Method, e.Producer, e.Target, st.Code(), said)
}

// isLate says whether words tell no more than that time was over. They differ with who noticed it first, and as
// causes of a message's troubles they are one.
func isLate(said string) bool {
	return said == context.DeadlineExceeded.Error() || strings.HasPrefix(said, "stream terminated by RST_STREAM")
}

// Unresolved says that the target's name did not resolve, or to no address. gRPC has no other sign of it than these
// words.
func (e *UnreachableError) Unresolved() bool {
	return e.Code() == codes.Unavailable && strings.Contains(status.Convert(e.err).Message(), "no children to pick from")
}

// Refused says that the producer was reached, and does not take the caller for one of its coordinators.
func (e *UnreachableError) Refused() bool {
	return e.Code() == codes.Unauthenticated || e.Code() == codes.PermissionDenied
}

// Unwrap gives the gRPC error.
func (e *UnreachableError) Unwrap() error { return e.err }

// Code is the gRPC status code of the failure.
func (e *UnreachableError) Code() codes.Code { return status.Code(e.err) }

// Is says of halfmsg.ErrCallFailed whether the code is one that a producer answers because of a message. The others
// tell of the way to it, of a deadline, or of who calls.
func (e *UnreachableError) Is(target error) bool {
	if target != halfmsg.ErrCallFailed {
		return false
	}
	switch e.Code() {
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
