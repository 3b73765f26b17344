package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// room bounds how many calls are under way, which begins when their requests are decoded.
type room struct {
	calls     int64
	usedCalls atomic.Int64
}

// enter takes a place for a call; exit must follow when it returns true.
func (r *room) enter() bool {
	if r.usedCalls.Add(1) > r.calls {
		r.exit()
		return false
	}
	return true
}

func (r *room) exit() { r.usedCalls.Add(-1) }

// admit bounds how many calls are under way.
func (s *Server) admit(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if !ours(info.Server) {
		return next(ctx, request) // health must answer when all is full
	}
	if !s.room.enter() {
		return nil, s.fail(info.FullMethod, errTooMany, halfmsg.None)
	}
	defer s.room.exit()
	return next(ctx, request)
}

// ours tells our services from those that gRPC brings along.
func ours(server any) bool {
	switch server.(type) {
	case *producers, *operators:
		return true
	}
	return false
}

// recoverUnary turns a panic of a handler, which would end the process, into an error.
func (s *Server) recoverUnary(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (response any, err error) {
	defer func() {
		if p := recover(); p != nil {
			response, err = nil, s.fail(info.FullMethod, panicked(p), halfmsg.None)
		}
	}()
	return next(ctx, request)
}

func (s *Server) recoverStream(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.fail(info.FullMethod, panicked(p), halfmsg.None)
		}
	}()
	return next(server, stream)
}

func panicked(p any) error { return fmt.Errorf("%w: %v\n%s", errPanic, p, debug.Stack()) }

// endWithStop ends streams, such as a watch of the server's health, when the server stops; a drain would wait for ever.
func (s *Server) endWithStop(
	server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	if a := arrivalOf(stream.Context()); a != nil {
		a.claim()
		defer a.end()
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	return next(server, &endingStream{
		ServerStream: stream, ctx: ctx,
		arrive: func(decode func(any) error, v any) error { return s.arrive(ctx, info.FullMethod, decode, v) },
	})
}

// endingStream is a stream with a context of its own, with which its receiving ends, too.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
	// arrive reads the first message.
	arrive func(decode func(any) error, v any) error
	// begun says that its first message, which is its request, has been asked for; others may take their time.
	begun bool
}

// Context implements grpc.ServerStream.
func (s *endingStream) Context() context.Context { return s.ctx }

// RecvMsg implements grpc.ServerStream. What the client sends too late is received by nobody: its stream has ended.
func (s *endingStream) RecvMsg(message any) error {
	received := make(chan error, 1)
	take := read
	if !s.begun {
		s.begun, take = true, s.arrive
	}
	go func() {
		defer func() {
			if p := recover(); p != nil {
				received <- panicked(p) // where recoverStream does not see it
			}
		}()
		received <- take(s.ServerStream.RecvMsg, message)
	}()
	select {
	case err := <-received:
		return err
	case <-s.ctx.Done():
		return status.Error(codes.Unavailable, "the server is stopping")
	}
}
