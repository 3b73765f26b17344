package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/msghandler/msghandler/internal/certs"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/guard"
)

// Permissions say who may call what: globs, as of path.Match, on the names in the caller's certificate. The zero value
// allows everything to all callers.
type Permissions struct {
	// Admins may use AdminService. None: all who can connect.
	Admins []string
	// Callers returns the globs of callers that may call as a producer. None: all who can connect. May be nil.
	Callers func(producer string) []string
}

// errCaller is wrapped by every forbiddenError.
var errCaller = errors.New("the caller may not do this")

// forbiddenError refuses a call because of its caller.
type forbiddenError struct {
	names []string
	what  string
	key   string
}

// Error names the caller and what to change.
func (e *forbiddenError) Error() string {
	who := "a client without a certificate"
	if len(e.names) > 0 {
		who = "a certificate of " + strings.Join(e.names, ", ")
	}
	return fmt.Sprintf("%s may not %s; %s says who may", who, e.what, e.key)
}

// Unwrap implements errors.Is.
func (e *forbiddenError) Unwrap() error { return errCaller }

// authorizeProducer refuses a caller who may not call as the producer of the request. An empty name is no producer's.
func (s *Server) authorizeProducer(ctx context.Context, request any) error {
	var producer string
	if of, ok := request.(interface{ GetProducer() string }); ok {
		producer = of.GetProducer()
	}
	if err := s.config.Permissions.caller(ctx, producer); err != nil {
		return s.refuse(producer, err)
	}
	return nil
}

// authorizeOperator refuses a caller who may not use AdminService.
func (s *Server) authorizeOperator(ctx context.Context, method string) error {
	if err := s.config.Permissions.admin(ctx); err != nil {
		return s.fail(method, err, halfmsg.None)
	}
	return nil
}

func (p Permissions) admin(ctx context.Context) error {
	if len(p.Admins) == 0 || certs.AnyMatches(p.Admins, namesOf(ctx)) {
		return nil
	}
	return &forbiddenError{namesOf(ctx), "use the admin API", "grpc.admins"}
}

func (p Permissions) caller(ctx context.Context, producer string) error {
	if p.Callers == nil {
		return nil
	}
	globs := p.Callers(producer)
	if len(globs) == 0 || certs.AnyMatches(globs, namesOf(ctx)) {
		return nil
	}
	return &forbiddenError{
		namesOf(ctx), fmt.Sprintf("call as producer %.100q", producer), "grpc.callers, or producers.NAME.callers,",
	}
}

// namesOf are the names in the caller's certificate; none where the caller has shown no certificate.
func namesOf(ctx context.Context) []string { return certs.CallerNames(guard.AuthInfo(ctx)) }
