package server

import (
	"context"
	"slices"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/guard"
)

// inFlight bounds the calls in flight, which are calls whose requests are decoded.
type inFlight struct {
	limit int64
	calls atomic.Int64
}

// acquire takes a slot for a call; release must follow when the result is true.
func (f *inFlight) acquire() bool {
	if f.calls.Add(1) > f.limit {
		f.release()
		return false
	}
	return true
}

func (f *inFlight) release() { f.calls.Add(-1) }

// admit checks that the caller may make the call, and bounds the calls in flight. Open methods answer when the server
// is full.
func (s *Server) admit(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if needs[info.FullMethod].open {
		return next(ctx, request)
	}
	ctx, err := s.authorize(ctx, info.FullMethod, request)
	if err != nil {
		return nil, err
	}
	if !s.inFlight.acquire() {
		return nil, s.fail(ctx, info.FullMethod, guard.ErrTooManyCalls, halfmsg.None)
	}
	defer s.inFlight.release()
	return next(ctx, request)
}

// admitStream checks the callers of streams, and turns panics into errors.
func (s *Server) admitStream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	if failure := lifecycle.Recovered(func() { err = s.serveStream(server, stream, info, next) }); failure != nil {
		return s.fail(stream.Context(), info.FullMethod, failure, halfmsg.None)
	}
	return err
}

// serveStream runs a stream whose caller may open it. The handler checks the producer, which the first message names.
func (s *Server) serveStream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	if needs[info.FullMethod].open {
		return next(server, stream)
	}
	ctx, err := s.authorize(stream.Context(), info.FullMethod, nil)
	if err != nil {
		return err
	}
	ofCaller, stop := s.newCallerStream(ctx, stream, info.FullMethod)
	defer stop()
	err = next(server, ofCaller)
	if withdrawn := ofCaller.withdrawn.Load(); withdrawn != nil {
		return *withdrawn
	}
	return err
}

// interceptUnary joins the interceptors of unary calls, for all protocols.
func (s *Server) interceptUnary() grpc.UnaryServerInterceptor {
	all := append([]grpc.UnaryServerInterceptor{s.recoverUnary}, s.config.Interceptors...)
	joined := s.admit
	for _, outer := range slices.Backward(all) {
		inner := joined
		joined = func(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			return outer(ctx, request, info, func(ctx context.Context, request any) (any, error) {
				return inner(ctx, request, info, next)
			})
		}
	}
	return joined
}

// interceptStream joins the interceptors of streams, for HTTP.
func (s *Server) interceptStream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	return s.admitStream(server, stream, info, func(server any, stream grpc.ServerStream) error {
		return s.guard.InterceptStream(server, stream, info, next)
	})
}

// recoverUnary turns a panic of a handler or interceptor, which would end the process, into an error.
func (s *Server) recoverUnary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (response any, err error) {
	if failure := lifecycle.Recovered(func() { response, err = next(ctx, request) }); failure != nil {
		return nil, s.fail(ctx, info.FullMethod, failure, halfmsg.None)
	}
	return response, err
}
