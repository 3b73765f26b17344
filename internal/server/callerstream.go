package server

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/access"
)

// callerStream is an open stream of a caller. Its context holds the identity of the caller, and ends when the caller
// loses the right to the stream.
type callerStream struct {
	grpc.ServerStream
	server *Server
	method string
	ctx    context.Context
	cancel context.CancelFunc
	// withdrawn is the client's error once the caller has lost the right to the stream.
	withdrawn atomic.Pointer[error]
	// request is the first message, once the handler has checked it: it names the producer.
	request atomic.Pointer[any]
}

type callerStreamKey struct{}

// newCallerStream returns the stream of a caller who is checked again until stop is called.
func (s *Server) newCallerStream(
	ctx context.Context, stream grpc.ServerStream, method string,
) (c *callerStream, stop func()) {
	c = &callerStream{ServerStream: stream, server: s, method: method}
	ctx, c.cancel = context.WithCancel(ctx)
	c.ctx = context.WithValue(ctx, callerStreamKey{}, c)
	s.background.Go(c.check)
	return c, c.cancel
}

// noteRequest says for which request the caller of a stream is checked again.
func noteRequest(ctx context.Context, request any) {
	if c, ok := ctx.Value(callerStreamKey{}).(*callerStream); ok {
		c.request.Store(&request)
	}
}

// check proves again and again who the caller is, until the stream ends. A source that cannot decide now ends no stream
// before the last proof has expired.
func (c *callerStream) check() {
	proved := access.From(c.ctx)
	ticker := time.NewTicker(c.server.config.recheck)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
		}
		var request any
		if first := c.request.Load(); first != nil {
			request = *first
		}
		caller, err := c.server.permitted(c.ctx, c.method, request)
		switch {
		case err == nil:
			proved = caller
		case !errors.Is(err, access.ErrUnavailable) || proved.Expired():
			refused := c.server.refuseCaller(c.ctx, c.method, producerOf(request), err)
			c.withdrawn.Store(&refused)
			c.cancel()
			return
		}
	}
}

// Context implements grpc.ServerStream.
func (c *callerStream) Context() context.Context { return c.ctx }

// SendMsg implements grpc.ServerStream. A caller who has lost the right to the stream gets nothing more.
func (c *callerStream) SendMsg(m any) error {
	if err := c.withdrawn.Load(); err != nil {
		return *err
	}
	return c.ServerStream.SendMsg(m)
}
