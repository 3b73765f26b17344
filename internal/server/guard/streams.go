package guard

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// InterceptStream reads the messages of a stream, and ends the stream when the server stops, unless it is one of
// Config.Duplex. A drain would wait for ever for a watch of the server's health.
func (g *Guard) InterceptStream(
	server any, grpcStream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	if r := requestOf(grpcStream.Context()); r != nil && !r.handled.Swap(true) {
		defer r.end() // the end of AdmitHTTP frees an HTTP request, because its body may be read longer than the handler runs
	}
	if g.config.Open != nil && g.config.Open(info.FullMethod) {
		release, err := g.holdStream(grpcStream.Context())
		if err != nil {
			return g.refuse(grpcStream.Context(), info.FullMethod, err)
		}
		defer release()
	}
	ctx, cancel := context.WithCancel(grpcStream.Context())
	defer cancel()
	if _, is := g.config.Duplex[info.FullMethod]; !is {
		defer context.AfterFunc(g.config.Stopping, cancel)()
	}
	return next(server, &stream{ServerStream: grpcStream, guard: g, ctx: ctx, method: info.FullMethod})
}

// holdStream counts an open stream of a method that answers everyone, until release is called.
func (g *Guard) holdStream(ctx context.Context) (release func(), err error) {
	r := requestOf(ctx)
	if r == nil {
		return func() {}, nil
	}
	c := r.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.acquireLocked(openStreams, 1) {
		return nil, ErrTooManyStreams
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.releaseLocked(openStreams, 1)
	}, nil
}

// stream is a stream with a context of its own, which also ends the receiving.
type stream struct {
	grpc.ServerStream
	guard  *Guard
	ctx    context.Context
	method string
	// begun says that the first message, which is the request, has been asked for. Further messages may take their time.
	begun bool
	// further says that a further message was read.
	further bool
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// received is the result of receiving one message.
type received struct {
	err     error
	failure *lifecycle.PanicError
}

// RecvMsg implements grpc.ServerStream. A message that comes after the end of the context is dropped: its stream has
// ended. A panic goes on in the handler, where the interceptors find it.
func (s *stream) RecvMsg(message any) error {
	read := s.readFurther
	if !s.begun {
		s.begun, read = true, s.readFirst
	}
	done := make(chan received, 1)
	s.guard.receivers.Go(func() {
		var r received
		r.failure = lifecycle.Recovered(func() { r.err = read(message) })
		done <- r
	})
	select {
	case r := <-done:
		if r.failure != nil {
			panic(r.failure)
		}
		return r.err
	case <-s.ctx.Done():
		if s.guard.config.Stopping.Err() != nil {
			return status.Error(codes.Unavailable, "the server is stopping")
		}
		return status.FromContextError(s.endReason()).Err()
	}
}

// endReason says why the context has ended. At the deadline of a call by HTTP, net/http may give up reading the body
// first, and cancel the context.
func (s *stream) endReason() error {
	if deadline, set := s.ctx.Deadline(); set && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return s.ctx.Err()
}

func (s *stream) readFirst(message any) error {
	return s.guard.read(s.ctx, s.method, s.ServerStream.RecvMsg, message)
}

// readFurther reads a message after the request. The one before is done with.
func (s *stream) readFurther(message any) error {
	r := requestOf(s.ctx)
	if s.further && r != nil {
		r.endFurther()
	}
	err := decodeInto(r, s.ServerStream.RecvMsg, message)
	s.further = err == nil
	if err == nil && r != nil && r.isRefused() {
		err = ErrBytes
	}
	return s.guard.refuse(s.ctx, s.method, err)
}
