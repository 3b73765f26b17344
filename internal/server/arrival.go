package server

import (
	"context"
	"encoding/binary"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"
)

const (
	// smallRequest is how many bytes a request may announce and still draw on the bytes that are kept for small
	// requests. It is the window that a client may fill before gRPC asks for more.
	smallRequest = 64 << 10
	// furtherMessage is how many bytes a probe may have, and a message after the request. No call of this API
	// has a second message; a conversation about reflection has, and its messages are names.
	furtherMessage = 4 << 10
	// sweepInterval bounds what refusing many requests costs.
	sweepInterval = time.Second
	// healthMethods is what the names of the methods of grpc.health.v1 begin with.
	healthMethods = "/grpc.health.v1.Health/"
	// prefixLen is the length of what precedes a message on the wire: one byte of flags and four of length.
	prefixLen = 5
)

// arrival is a request from its headers until its call ends. The arrival holds a call until the request is
// decoded, and the announced bytes until the call ends. They are taken before any of the request is received,
// so each admitted request can finish. An arrival is the context of its stream, so that the handler finds the
// arrival.
//
// conn.mu guards its fields: the goroutine that reads the connection receives, and the handler's goroutine ends
// the arrival.
type arrival struct {
	context.Context

	conn   *connection
	stream uint32
	// claimed says that a handler ends the arrival. Until then the stream may end without one, as for an unknown method.
	claimed atomic.Bool

	prefix [prefixLen]byte
	// have is how much of a prefix has come; left is how much of its message has still to come.
	have int
	left int64
	// call is unfinishedCalls or unfinishedProbes.
	call resource
	// announced says that the size of the request is known, or that nothing comes. Where a handler waits for
	// that, sized is closed then.
	announced bool
	sized     chan struct{}
	// refused says that the budgets do not allow the announced bytes.
	refused bool
	// bytes is what the request holds of requestBytes, and of largeBytes where the request is large.
	bytes   int64
	decoded bool
	ended   bool
}

// arrivalKey finds the arrival of a call in its context.
type arrivalKey struct{}

// Value implements context.Context.
func (a *arrival) Value(key any) any {
	if key == (arrivalKey{}) {
		return a
	}
	return a.Context.Value(key)
}

func arrivalOf(ctx context.Context) *arrival {
	a, _ := ctx.Value(arrivalKey{}).(*arrival)
	return a
}

// tap is called by gRPC for each call, in the goroutine that reads its connection, when the headers are there and
// nothing of the request has been read.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	from, ok := p.AuthInfo.(caller)
	if !ok {
		return ctx, nil
	}
	call := callOf(info.FullMethodName)
	a := from.conn.arrive(ctx, call)
	if a == nil && s.clients.sweep() {
		a = from.conn.arrive(ctx, call)
	}
	if a == nil {
		return nil, s.refuseUnread(ctx, info.FullMethodName, errTooMany)
	}
	return a, nil
}

// callOf is the resource that a call of a method takes until its request is decoded.
func callOf(method string) resource {
	if strings.HasPrefix(method, healthMethods) {
		return unfinishedProbes
	}
	return unfinishedCalls
}

// arrive adds the call whose headers were read last. The result is nil where too many calls are unfinished: in
// all, of the address, or of the connection.
func (one *connection) arrive(ctx context.Context, call resource) *arrival {
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.arrivals) > 2*maxStreams {
		one.sweepLocked() // no more than maxStreams can be alive
	}
	if !one.acquireLocked(call, 1) {
		return nil
	}
	a := &arrival{Context: ctx, conn: one, stream: one.frames.stream, call: call, announced: one.frames.ends}
	if one.arrivals == nil {
		one.arrivals = map[uint32]*arrival{}
	}
	one.arrivals[a.stream] = a
	return a
}

// sweepLocked ends the arrivals whose streams have ended before a handler claimed them.
func (one *connection) sweepLocked() {
	for _, a := range one.arrivals {
		if !a.claimed.Load() && a.Err() != nil {
			a.endLocked()
		}
	}
}

// sweep ends such arrivals on all connections, at most once in each sweepInterval, and reports whether it did.
// It is called when a request is refused because of what such arrivals may still hold.
func (c *connections) sweep() bool {
	now, last := time.Now().UnixNano(), c.swept.Load()
	if now-last < int64(sweepInterval) || !c.swept.CompareAndSwap(last, now) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.open {
		one.sweep()
	}
	return true
}

func (one *connection) sweep() {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.sweepLocked()
}

// receive takes the next data of a stream's messages; no data is their end. It returns false when the
// connection must be closed.
func (one *connection) receive(stream uint32, data []byte) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	a := one.arrivals[stream]
	switch {
	case a == nil:
		return true
	case len(data) == 0:
		a.setAnnouncedLocked()
		return true
	}
	return a.receiveLocked(data)
}

func (a *arrival) receiveLocked(data []byte) bool {
	for len(data) > 0 && !a.refused {
		if a.left > 0 {
			n := min(a.left, int64(len(data)))
			a.left -= n
			data = data[n:]
			continue
		}
		n := copy(a.prefix[a.have:], data)
		data = data[n:]
		if a.have += n; a.have < prefixLen {
			return true
		}
		a.have = 0
		a.left = int64(binary.BigEndian.Uint32(a.prefix[1:]))
		if !a.announced {
			a.refused = !a.acquireBytesLocked(a.left)
			a.setAnnouncedLocked()
		} else if a.left > furtherMessage {
			return false
		}
	}
	return true
}

// acquireBytesLocked takes the announced bytes of the request, and says whether the budgets allow them.
func (a *arrival) acquireBytesLocked(length int64) bool {
	switch {
	case length > a.conn.all.maxRequest:
		return true // gRPC refuses a request that is too large, and receives nothing more of it
	case a.call == unfinishedProbes:
		return length <= furtherMessage
	case !a.conn.acquireLocked(requestBytes, length):
		return false
	case length > smallRequest && !a.conn.acquireLocked(largeBytes, length):
		a.conn.releaseLocked(requestBytes, length)
		return false
	}
	a.bytes = length
	return true
}

// setAnnouncedLocked lets the handler go on: whether the request is refused is known, or that nothing comes.
func (a *arrival) setAnnouncedLocked() {
	if a.announced = true; a.sized != nil {
		close(a.sized)
		a.sized = nil
	}
}

// admitted waits until the request has announced its size, and says whether the budgets allow the request. As a
// rule the size is known before the handler runs.
func (a *arrival) admitted() bool {
	a.conn.mu.Lock()
	sized := a.sized
	if !a.announced && sized == nil {
		sized = make(chan struct{})
		a.sized = sized
	}
	announced := a.announced
	a.conn.mu.Unlock()
	if !announced {
		select {
		case <-sized:
		case <-a.Done():
		}
	}
	a.conn.mu.Lock()
	defer a.conn.mu.Unlock()
	return !a.refused
}

// claim says that a handler ends the arrival.
func (a *arrival) claim() { a.claimed.Store(true) }

// setDecoded says that the request has been received and decoded, or that it will not be.
func (a *arrival) setDecoded() {
	a.conn.mu.Lock()
	defer a.conn.mu.Unlock()
	a.setDecodedLocked()
}

func (a *arrival) setDecodedLocked() {
	if !a.decoded {
		a.decoded = true
		a.conn.releaseLocked(a.call, 1)
	}
}

// end frees what the request held.
func (a *arrival) end() {
	a.conn.mu.Lock()
	defer a.conn.mu.Unlock()
	a.endLocked()
}

func (a *arrival) endLocked() {
	if a.ended {
		return
	}
	a.ended = true
	a.setDecodedLocked()
	a.conn.releaseLocked(requestBytes, a.bytes)
	if a.bytes > smallRequest {
		a.conn.releaseLocked(largeBytes, a.bytes)
	}
	a.bytes = 0
	delete(a.conn.arrivals, a.stream)
}

// encodingOf is how a call's request is compressed, and empty where it is not. gRPC keeps it out of the metadata.
func encodingOf(ctx context.Context) string {
	stream, ok := grpc.ServerTransportStreamFromContext(ctx).(interface{ RecvCompress() string })
	if !ok {
		return ""
	}
	if encoding := stream.RecvCompress(); encoding != "identity" {
		return encoding
	}
	return ""
}
