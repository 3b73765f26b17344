package server

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// room bounds how many calls are under way, and how many bytes their requests hold.
type room struct {
	calls, bytes         int64
	usedCalls, usedBytes atomic.Int64
}

// enter takes a place; leave must follow when it returns true. A request larger than the whole room may enter when
// nobody else is there, or it never could.
func (r *room) enter(size int64) bool {
	calls, bytes := r.usedCalls.Add(1), r.usedBytes.Add(size)
	if calls > r.calls || bytes > r.bytes && bytes != size {
		r.leave(size)
		return false
	}
	return true
}

func (r *room) leave(size int64) {
	r.usedCalls.Add(-1)
	r.usedBytes.Add(-size)
}

// admit bounds what is under way.
func (s *Server) admit(
	ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if !ours(info.Server) {
		return next(ctx, request) // health must answer when all is full
	}
	var size int64
	if message, ok := request.(proto.Message); ok {
		size = int64(proto.Size(message))
	}
	if !s.room.enter(size) {
		return nil, s.fail(info.FullMethod, errTooMany, halfmsg.None)
	}
	defer s.room.leave(size)
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
	server any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(s.stopping, cancel)()
	return next(server, &endingStream{ServerStream: stream, ctx: ctx})
}

// endingStream is a stream with a context of its own, with which its receiving ends, too.
type endingStream struct {
	grpc.ServerStream
	ctx context.Context
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
		s.begun, take = true, func(decode func(any) error, v any) error { return arrive(s.ctx, decode, v) }
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
