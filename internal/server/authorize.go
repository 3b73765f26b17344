package server

import (
	"context"
	"errors"
	"fmt"
	"path"

	"google.golang.org/grpc/metadata"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/guard"
	"github.com/msghandler/msghandler/proto/certs"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// errCaller is wrapped by the error about a caller who lacks a right.
var errCaller = errors.New("the caller may not do this")

// callerError refuses a call because of its caller, in words fit for the caller.
type callerError struct {
	kind error
	text string
}

// Error implements error.
func (e *callerError) Error() string { return e.text }

// Unwrap implements errors.Is.
func (e *callerError) Unwrap() error { return e.kind }

// identify makes the identity of a caller, once per call.
func (s *Server) identify(ctx context.Context) (access.Identity, error) {
	return s.config.Access.Identify(ctx, access.Shown{
		Certificate:   certs.ClientCertificate(guard.AuthInfo(ctx)),
		Authorization: metadata.ValueFromIncomingContext(ctx, "authorization"),
	})
}

// permitted makes the identity of a caller, who must have what a method needs.
func (s *Server) permitted(ctx context.Context, method string, request any) (access.Identity, error) {
	caller, err := s.identify(ctx)
	if err != nil {
		return access.Identity{}, err
	}
	return caller, permits(caller, method, request)
}

// identifyUnread makes the identity of the caller of a unary call, before a byte of the body is decoded. Whether a
// caller with an identity may call as the producer of the request, only the decoded request tells. No interceptor runs
// around it, so a panic, which would end the process, becomes an error here.
func (s *Server) identifyUnread(ctx context.Context, method string) (context.Context, error) {
	if needs[method].open {
		return ctx, nil
	}
	var caller access.Identity
	var err error
	failure := lifecycle.Recovered(func() { caller, err = s.permitted(ctx, method, nil) })
	if failure != nil {
		err = failure
	}
	switch {
	case err == nil:
		return access.With(ctx, caller), nil
	case failure == nil:
		ctx = context.WithValue(ctx, unreadKey{}, &refusedUnread{caller, err})
	}
	return ctx, translate(err, halfmsg.None).Err()
}

// refusedUnread is why a call is refused whose body is unread: authorize records it, and does not identify the caller
// again.
type refusedUnread struct {
	caller access.Identity
	err    error
}

type unreadKey struct{}

// authorize gives a call the identity of its caller, and refuses a caller who lacks what the method needs.
func (s *Server) authorize(ctx context.Context, method string, request any) (context.Context, error) {
	caller, err := access.From(ctx), error(nil)
	if refused, _ := ctx.Value(unreadKey{}).(*refusedUnread); refused != nil {
		caller, err = refused.caller, refused.err
	} else if caller.Kind == "" {
		caller, err = s.identify(ctx)
	}
	if err == nil {
		err = permits(caller, method, request)
	}
	if err != nil {
		return nil, s.refuseCaller(access.With(ctx, caller), method, producerOf(request), err)
	}
	return access.With(ctx, caller), nil
}

// refuseCaller answers a call that is refused because of its caller. Every such refusal comes here. A caller who cannot
// be checked now is not refused for good, and needs nothing from operators of the coordinator.
func (s *Server) refuseCaller(ctx context.Context, method, producer string, err error) error {
	if errors.Is(err, access.ErrUnavailable) {
		return s.fail(ctx, method, err, halfmsg.None)
	}
	s.recordRefusal(ctx, method, producer, err)
	// A stranger could name any producer in findings, alerts and metrics. The audit trail counts strangers by address.
	if needs[method].asProducer && !errors.Is(err, access.ErrUnauthenticated) {
		s.reportRefusal(ctx, producer, err)
	}
	return s.fail(ctx, method, err, halfmsg.None)
}

// permits reports, as an error, what a caller lacks for a method. A stream has no request yet.
func permits(caller access.Identity, method string, request any) error {
	need, known := needs[method]
	switch {
	case !known:
		return lacks(caller, fmt.Sprintf("call %.100q, which this coordinator does not offer", method))
	case need.asProducer && caller.MayCallAsNone():
		return lacks(caller, "call as a producer")
	case need.asProducer && request != nil && !caller.MayCallAs(producerOf(request)):
		return lacks(caller, fmt.Sprintf("call as producer %.100q: %s grants the right", producerOf(request),
			keys(caller, "the producers of the token", "access.oidc_producers_claim", "producers.NAME.callers or grpc.callers")))
	case caller.Role < need.role:
		return lacks(caller, fmt.Sprintf("use %s of the admin API with the role %s; the method needs %s: %s grants the role",
			path.Base(method), caller.Role, need.role,
			keys(caller, "the role of the token", "access.oidc_roles_claim", "access."+need.role.String()+"s")))
	case caller.Role < access.Reader && filterOf(request).GetHeader() != "":
		return lacks(caller, fmt.Sprintf("search in headers with the role %s; the filter header needs %s: %s grants the role",
			caller.Role, access.Reader, keys(caller, "the role of the token", "access.oidc_roles_claim", "access.readers")))
	case caller.Role < access.Operator && beyondProbe(request):
		return lacks(caller, fmt.Sprintf("ask a producer finally, or about other ids than %s..., with the role %s; "+
			"that needs %s: %s grants the role", halfmsg.ProbePrefix, caller.Role, access.Operator,
			keys(caller, "the role of the token", "access.oidc_roles_claim", "access.operators")))
	}
	return nil
}

// messageFilter is a filter of unfinished or of finished messages.
type messageFilter interface {
	GetProducer() string
	GetHeader() string
}

// filterOf is the filter of a request; an empty filter where the request has none.
func filterOf(request any) messageFilter {
	switch of := request.(type) {
	case interface{ GetFilter() *adminv1.MessageFilter }:
		return of.GetFilter()
	case interface {
		GetFilter() *adminv1.FinishedFilter
	}:
		return of.GetFilter()
	case interface {
		GetSelection() *adminv1.MessageSelection
	}:
		return of.GetSelection().GetFilter()
	case interface {
		GetSelection() *adminv1.FinishedSelection
	}:
		return of.GetSelection().GetFilter()
	}
	return (*adminv1.MessageFilter)(nil)
}

// lacks is the error about a caller who may not do something. A caller who has shown nothing should show a credential.
func lacks(caller access.Identity, what string) error {
	if caller.Kind == access.Anonymous || caller.Kind == "" {
		return &callerError{access.ErrUnauthenticated, fmt.Sprintf("%s may not %s; show a client certificate or a token",
			caller, what)}
	}
	return &callerError{errCaller, fmt.Sprintf("%.200s may not %s", caller, what)}
}

// keys name what grants a right to a caller: the rules, and what its source knows.
func keys(caller access.Identity, ofToken, ofJWT, rules string) string {
	switch caller.Kind {
	case access.Token:
		return ofToken + ", " + rules
	case access.JWT:
		return ofJWT + ", " + rules
	}
	return rules
}

// producerOf is the producer that a request or its filter names; empty where neither names one.
func producerOf(request any) string {
	if of, ok := request.(interface{ GetProducer() string }); ok {
		return of.GetProducer()
	}
	return filterOf(request).GetProducer()
}
