package server

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/msghandler/msghandler/internal/certs"
	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Permissions say whom his certificate lets do what: globs, as of path.Match, on the names in it. The zero value lets
// everybody do everything.
type Permissions struct {
	// Admins may use AdminService. None: whoever can connect.
	Admins []string
	// Callers gives those who may call as a producer; none: whoever can connect. May be nil.
	Callers func(producer string) []string
}

// errCaller is of every forbiddenError.
var errCaller = errors.New("the caller may not do this")

// forbiddenError refuses a call for whom it comes from.
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

// permit refuses calls by those who may not make them. Health and reflection are everybody's.
func (s *Server) permit(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	switch info.Server.(type) {
	case *operators:
		if err := s.config.Permissions.admin(ctx); err != nil {
			return nil, s.fail(info.FullMethod, err, halfmsg.None)
		}
	case *producers:
		var producer string // a request that named none would be nobody's
		if of, ok := request.(interface{ GetProducer() string }); ok {
			producer = of.GetProducer()
		}
		if err := s.config.Permissions.caller(ctx, producer); err != nil {
			return nil, s.refuse(producer, err)
		}
	}
	return next(ctx, request)
}

// permitStream does so for streams, all of which are of operators.
func (s *Server) permitStream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	if _, is := server.(*operators); is {
		if err := s.config.Permissions.admin(stream.Context()); err != nil {
			return s.fail(info.FullMethod, err, halfmsg.None)
		}
	}
	return next(server, stream)
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

// namesOf are the names in the certificate of whoever calls; none where he has shown none.
func namesOf(ctx context.Context) []string {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	from, ok := p.AuthInfo.(caller)
	if !ok {
		return nil
	}
	return certs.CallerNames(from.AuthInfo)
}
