package guard

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

const (
	// smallRequest is how many bytes a request may announce and still use the part of requestBytes that is kept for small
	// requests. A client may fill a window of that size before gRPC asks for more.
	smallRequest = 64 << 10
	// furtherMessage is how many bytes a probe may have, and a message after the request, except of Config.Duplex. A
	// reflection stream has further messages, and they are names.
	furtherMessage = 4 << 10
	// maxUnread is how many messages of a call may have begun over HTTP before the call reads them: the request, and
	// 64 KiB of further messages. Native gRPC needs no such limit, because its flow control waits for the stream.
	maxUnread = 1 + 16
	// sweepInterval bounds what refusing many requests costs.
	sweepInterval = time.Second
	// healthMethods is the prefix of the methods of grpc.health.v1.
	healthMethods = "/grpc.health.v1.Health/"
)

// request is a request from its headers until its call ends, and what the request holds of the budgets: a call until
// the request is decoded, and the announced bytes until the call ends. A request is the context of its stream, so that
// the handler finds the request.
//
// conn.mu guards its fields: the goroutine that reads the connection receives, and the handler's goroutine ends the
// request.
type request struct {
	context.Context

	conn   *connection
	stream uint32
	// handled says that a handler ends the request. Until then the stream may end without a handler, for example when the
	// method is unknown.
	handled atomic.Bool

	messages messages
	// call is unfinishedCalls or unfinishedProbes.
	call resource
	// announced says that the size of the request is known, or that nothing comes. Where a handler waits for the size,
	// sized is closed then.
	announced bool
	sized     chan struct{}
	// refused says that the budgets do not allow the announced bytes, tooLarge that no request may have so many.
	refused, tooLarge bool
	// bytes is what the request holds of requestBytes, and of largeBytes where the request is large.
	bytes int64
	// further is how many bytes a message after the request may have. Where such messages hold bytes of the budgets, until
	// the handler asks for the next, furtherBytes are those of the messages that have begun, in their order.
	further      int64
	furtherBytes []int64
	// unread is how many messages have begun and were not decoded yet.
	unread  int
	decoded bool
	ended   bool
	// compressed says that the body of an HTTP request is compressed.
	compressed bool
}

// requestKey finds the request of a call in its context.
type requestKey struct{}

// Value implements context.Context.
func (r *request) Value(key any) any {
	if key == (requestKey{}) {
		return r
	}
	return r.Context.Value(key)
}

func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// admit is called by gRPC for each call, in the goroutine that reads its connection, when the headers are there and
// nothing of the request has been read.
func (g *Guard) admit(ctx context.Context, info *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	from, ok := p.AuthInfo.(authInfo)
	if !ok {
		return ctx, nil
	}
	r := from.conn.admit(ctx, info.FullMethodName)
	if r == nil && g.sweep() {
		r = from.conn.admit(ctx, info.FullMethodName)
	}
	if r == nil {
		return nil, g.refuse(ctx, info.FullMethodName, ErrTooManyCalls)
	}
	return r, nil
}

// callOf is the resource that a call of a method takes until its request is decoded.
func callOf(method string) resource {
	if strings.HasPrefix(method, healthMethods) {
		return unfinishedProbes
	}
	return unfinishedCalls
}

// furtherOf is how many bytes a message after the request may have.
func (g *Guard) furtherOf(method string) int64 {
	if limit, is := g.config.Duplex[method]; is {
		return limit
	}
	return furtherMessage
}

// admit adds the request whose headers were read last. The result is nil where too many calls are unfinished: in all,
// of the address, or of the connection.
func (c *connection) admit(ctx context.Context, method string) *request {
	call := callOf(method)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.requests) > 2*maxStreams {
		c.sweepLocked() // no more than maxStreams can be alive
	}
	if !c.acquireLocked(call, 1) {
		return nil
	}
	r := &request{
		Context: ctx, conn: c, stream: c.frames.stream, call: call, announced: c.frames.ends,
		further: c.guard.furtherOf(method),
	}
	if c.requests == nil {
		c.requests = map[uint32]*request{}
	}
	c.requests[r.stream] = r
	return r
}

// sweepLocked ends the requests whose streams have ended before a handler took them over.
func (c *connection) sweepLocked() {
	for _, r := range c.requests {
		if !r.handled.Load() && r.Err() != nil {
			r.endLocked()
		}
	}
}

func (c *connection) sweep() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sweepLocked()
}

// sweep ends such requests on all connections, at most once in each sweepInterval, and reports whether it did. A
// refused request calls sweep, because requests without handlers may still hold what is missing.
func (g *Guard) sweep() bool {
	now, last := time.Now().UnixNano(), g.lastSweep.Load()
	if now-last < int64(sweepInterval) || !g.lastSweep.CompareAndSwap(last, now) {
		return false
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		c.sweep()
	}
	return true
}

// receive takes the next data of a stream's messages; empty data is their end. The result is false when the connection
// must be closed.
func (c *connection) receive(stream uint32, data []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.requests[stream]
	switch {
	case r == nil:
		return true
	case len(data) == 0:
		r.setAnnouncedLocked()
		return true
	}
	return r.receiveLocked(data)
}

func (r *request) receiveLocked(data []byte) bool {
	for !r.refused {
		length, rest, begins := r.messages.next(data)
		if !begins {
			return true
		}
		data = rest
		r.unread++
		switch {
		case !r.announced:
			r.refused = !r.acquireBytesLocked(length)
			r.setAnnouncedLocked()
		case length > r.further:
			return false
		case r.further > furtherMessage:
			r.refused = !r.conn.acquireBytesLocked(length)
			r.noteFurtherLocked(length)
		}
	}
	return true
}

// noteFurtherLocked notes that a message after the request holds bytes of the budgets.
func (r *request) noteFurtherLocked(length int64) {
	if !r.refused {
		r.furtherBytes = append(r.furtherBytes, length)
	}
}

// endFurther gives back what the oldest message after the request holds.
func (r *request) endFurther() {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.endFurtherLocked()
}

// isRefused reports whether the budgets did not allow a message.
func (r *request) isRefused() bool {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	return r.refused
}

func (r *request) endFurtherLocked() {
	if len(r.furtherBytes) > 0 {
		r.conn.releaseBytesLocked(r.furtherBytes[0])
		r.furtherBytes = r.furtherBytes[1:]
	}
}

// acquireBytesLocked takes the announced bytes of a request of gRPC, and reports whether the budgets allow them.
func (r *request) acquireBytesLocked(length int64) bool {
	if length > int64(r.conn.guard.config.Limits.Request) {
		r.tooLarge = true // it is refused, and nothing more of it is received
		return true
	}
	return r.holdLocked(length)
}

// holdLocked takes bytes from the budgets, and reports whether the budgets allow them.
func (r *request) holdLocked(length int64) bool {
	if r.call == unfinishedProbes {
		return length <= furtherMessage
	}
	if !r.conn.acquireBytesLocked(length) {
		return false
	}
	r.bytes = length
	return true
}

// acquireBytesLocked takes bytes of a message from the budgets, and reports whether the budgets allow them. The caller
// holds c.mu.
func (c *connection) acquireBytesLocked(length int64) bool {
	if !c.acquireLocked(requestBytes, length) {
		return false
	}
	if length > smallRequest && !c.acquireLocked(largeBytes, length) {
		c.releaseLocked(requestBytes, length)
		return false
	}
	return true
}

// releaseBytesLocked gives bytes of a message back. The caller holds c.mu.
func (c *connection) releaseBytesLocked(length int64) {
	c.releaseLocked(requestBytes, length)
	if length > smallRequest {
		c.releaseLocked(largeBytes, length)
	}
}

// setAnnouncedLocked lets the handler go on: whether the request is refused is known, or that nothing comes.
func (r *request) setAnnouncedLocked() {
	if r.announced = true; r.sized != nil {
		close(r.sized)
		r.sized = nil
	}
}

// awaitSize waits until the request has announced its size. The error is ErrBytes where the budgets do not allow the
// request, and ErrTooLarge where no request may be so large. As a rule the size is known before the handler runs.
func (r *request) awaitSize() error {
	r.conn.mu.Lock()
	sized := r.sized
	if !r.announced && sized == nil {
		sized = make(chan struct{})
		r.sized = sized
	}
	announced := r.announced
	r.conn.mu.Unlock()
	if !announced {
		select {
		case <-sized:
		case <-r.Done():
		}
	}
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	switch {
	case r.refused:
		return ErrBytes
	case r.tooLarge:
		return ErrTooLarge
	}
	return nil
}

// setRead says that gRPC has handed a message out.
func (r *request) setRead() {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.unread--
}

// setHandled says that a handler ends the request.
func (r *request) setHandled() { r.handled.Store(true) }

// setDecoded says that the request has been received and decoded, or that it will not be.
func (r *request) setDecoded() {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.setDecodedLocked()
}

func (r *request) setDecodedLocked() {
	if !r.decoded {
		r.decoded = true
		r.conn.releaseLocked(r.call, 1)
	}
}

// end frees what the request held.
func (r *request) end() {
	r.conn.mu.Lock()
	defer r.conn.mu.Unlock()
	r.endLocked()
}

func (r *request) endLocked() {
	if r.ended {
		return
	}
	r.ended = true
	r.setDecodedLocked()
	r.conn.releaseBytesLocked(r.bytes)
	r.bytes = 0
	for len(r.furtherBytes) > 0 {
		r.endFurtherLocked()
	}
	delete(r.conn.requests, r.stream)
}
