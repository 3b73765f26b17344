package guard

import (
	"context"
	"errors"

	"google.golang.org/grpc/peer"
)

// ErrorDomain is the domain of every ErrorInfo.
const ErrorDomain = "msghandler"

// Refusals of a request before the request is decoded.
var (
	ErrCompressed   = errors.New("the request is compressed")
	ErrBytes        = errors.New("requests in flight hold as many bytes as they may")
	ErrTooManyCalls = errors.New("too many calls")
	// ErrTooLarge refuses a request that no later call can bring: the caller must split it.
	ErrTooLarge = errors.New("the request is larger than a request may be")
	// ErrTooManyStreams refuses a stream of a method that answers everyone.
	ErrTooManyStreams = errors.New("too many open streams")
)

// Why a request is refused before the request is decoded, as metrics name the reasons: the request is compressed, the
// requests in flight hold as many bytes as they may, too many requests are arriving, or too many streams of methods
// that answer everyone are open.
const (
	RefusedCompressed = "compressed"
	RefusedBytes      = "bytes"
	RefusedCalls      = "calls"
	RefusedStreams    = "streams"
)

// Reasons lists why requests are refused before they are decoded.
func Reasons() []string {
	return []string{RefusedCompressed, RefusedBytes, RefusedCalls, RefusedStreams}
}

// unreadRefusal is a refusal of a request before the request is decoded. No interceptor sees such a call, so
// the call is in no other metric and no other log line.
type unreadRefusal struct {
	err error
	// reason is one of Reasons.
	reason string
	// resource is what there is too little of. The address that holds most of the resource is logged, unless
	// compressed.
	resource resource
	text     string
}

var unreadRefusals = []unreadRefusal{
	{
		ErrCompressed, RefusedCompressed, resources,
		"compressed request refused unread; its caller gets UNIMPLEMENTED, and nothing is stored; " +
			"switch off compression in the client",
	},
	{
		ErrBytes, RefusedBytes, requestBytes,
		"request refused unread: too many announced bytes; its caller gets RESOURCE_EXHAUSTED, and nothing is stored; " +
			"find out what the largest holder sends, or raise GOMEMLIMIT",
	},
	{
		ErrTooManyCalls, RefusedCalls, unfinishedCalls,
		"request refused unread: too many unfinished calls; its caller gets RESOURCE_EXHAUSTED, and nothing is stored; " +
			"find out why requests of the largest holder do not arrive, or add coordinators",
	},
	{
		ErrTooManyStreams, RefusedStreams, openStreams,
		"stream refused: too many open streams that need no identity; its caller gets RESOURCE_EXHAUSTED; " +
			"find out why the largest holder watches the health so often, or add coordinators",
	},
}

// refuse counts, logs and translates a refusal. gRPC's own errors are the client's already.
func (g *Guard) refuse(ctx context.Context, method string, err error) error {
	if err == nil {
		return nil
	}
	for _, refusal := range unreadRefusals {
		if errors.Is(err, refusal.err) {
			g.config.Refused(refusal.reason)
			g.logRefusal(ctx, method, refusal)
			return g.config.Translate(err)
		}
	}
	if undecodable := (*FieldError)(nil); errors.As(err, &undecodable) || errors.Is(err, ErrTooLarge) {
		return g.config.Translate(err)
	}
	return err
}

// logRefusal logs each kind of refusal at most once in a logInterval.
func (g *Guard) logRefusal(ctx context.Context, method string, refusal unreadRefusal) {
	suppressed, due := g.logged.Due(refusal.reason)
	if !due {
		return
	}
	client := ""
	if from, ok := peer.FromContext(ctx); ok {
		client = from.Addr.String()
	}
	scarce := refusal.resource
	switch scarce {
	case resources:
		g.config.Logger.Warn(refusal.text, "call", method, "from", client, "not_logged_before", suppressed)
		return
	case unfinishedCalls:
		scarce = callOf(method)
	}
	holder, held := g.largestHolder(scarce)
	g.config.Logger.Warn(refusal.text, "call", method, "from", client, "largest_holder", holder, "held", held,
		"not_logged_before", suppressed)
}
