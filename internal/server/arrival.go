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

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// smallRequest is how many bytes a request may announce and still draw on the reserve of the room. It is the window that a
	// client may fill before gRPC asks it for more.
	smallRequest = 64 << 10
	// furtherMessage is how many bytes a probe may have, and what comes after the request. No call of this API has a second
	// message; a conversation about reflection has, and they are names.
	furtherMessage = 4 << 10
	// sweepInterval bounds what refusing many requests costs.
	sweepInterval = time.Second
	// healthMethods is what the names of the methods of grpc.health.v1 begin with.
	healthMethods = "/grpc.health.v1.Health/"
	// prefixLen is the length of what precedes a message on the wire: one byte of flags and four of length.
	prefixLen = 5
)

// arrival is a request from its headers until its call ends. It holds the bytes that the request takes in the room: a
// large request holds what it announces, before any of it is received, so each one that is admitted can finish; a small one
// holds what has come of it. It is the context of its stream, so that the handler finds it.
//
// conn.mu guards its fields: the goroutine that reads the connection receives, and the one of the handler ends it.
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
	// small says that what comes is held as it comes.
	small bool
	// probe says that it asks for the server's health, which is answered when all is full.
	probe bool
	// told says that the request has announced its size, or that nothing comes. known is closed then, where a handler waits.
	told  bool
	known chan struct{}
	// refused says that there is no room for it.
	refused bool
	held    int64
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

// tap is called by gRPC for each call, in the goroutine that reads its connection, when the headers are there and nothing of
// the request has been read.
func (s *Server) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return ctx, nil
	}
	from, ok := p.AuthInfo.(caller)
	if !ok {
		return ctx, nil
	}
	a := from.conn.arrive(ctx, strings.HasPrefix(info.FullMethodName, healthMethods))
	if a == nil {
		s.clients.sweep()
		s.config.RefusedUnread(RefusedCalls)
		return nil, s.fail(info.FullMethodName, errTooMany, halfmsg.None)
	}
	return a, nil
}

// arrive notes a call whose headers were read last. It returns nil where too many requests are arriving.
func (one *connection) arrive(ctx context.Context, probe bool) *arrival {
	one.mu.Lock()
	defer one.mu.Unlock()
	if len(one.arrivals) > 2*maxStreams {
		one.sweepLocked() // no more than maxStreams can be alive
	}
	most := one.all.room.calls
	if probe {
		most *= 2
	}
	if one.all.arriving.Add(1) > most {
		one.all.arriving.Add(-1)
		return nil
	}
	a := &arrival{Context: ctx, conn: one, stream: one.frames.stream, probe: probe, told: one.frames.ends}
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

// sweep does so on all connections, though not oftener than each sweepInterval. It is for when something is refused that those
// arrivals may keep out.
func (c *connections) sweep() {
	now, last := time.Now().UnixNano(), c.swept.Load()
	if now-last < int64(sweepInterval) || !c.swept.CompareAndSwap(last, now) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for one := range c.open {
		one.sweep()
	}
}

func (one *connection) sweep() {
	one.mu.Lock()
	defer one.mu.Unlock()
	one.sweepLocked()
}

// receive takes what has come of a stream's messages; nothing is their end. It returns false when the connection must be closed.
func (one *connection) receive(stream uint32, data []byte) bool {
	one.mu.Lock()
	defer one.mu.Unlock()
	a := one.arrivals[stream]
	switch {
	case a == nil:
		return true
	case len(data) == 0:
		a.tell()
		return true
	}
	return a.receive(data)
}

func (a *arrival) receive(data []byte) bool {
	for len(data) > 0 && !a.refused {
		if a.left > 0 {
			n := min(a.left, int64(len(data)))
			if a.left -= n; a.small {
				a.held += n
				if !a.conn.all.room.grow(n) {
					return false
				}
			}
			data = data[n:]
			continue
		}
		n := copy(a.prefix[a.have:], data)
		data = data[n:]
		if a.have += n; a.have < prefixLen {
			return true
		}
		a.have = 0
		if length := int64(binary.BigEndian.Uint32(a.prefix[1:])); !a.told {
			a.refused = !a.begin(length)
			a.tell()
		} else if a.left, a.small = length, false; length > furtherMessage {
			return false
		}
	}
	return true
}

// begin takes the length of the request, and says whether there is room for it.
func (a *arrival) begin(length int64) bool {
	room := a.conn.all.room
	a.left = length
	switch {
	case length > a.conn.all.maxRequest:
		return true // gRPC refuses it, and receives nothing more of it
	case a.probe:
		return length <= furtherMessage
	case length <= smallRequest:
		a.small = true
		return room.fits(length)
	case !room.take(length):
		return false
	}
	a.held = length
	return true
}

// tell lets the handler go on: it is known whether there is room, or that nothing comes.
func (a *arrival) tell() {
	if a.told = true; a.known != nil {
		close(a.known)
		a.known = nil
	}
}

// admitted waits until the request has announced its size, and says whether there is room for it. As a rule that is known
// before the handler runs.
func (a *arrival) admitted() bool {
	a.conn.mu.Lock()
	known := a.known
	if !a.told && known == nil {
		known = make(chan struct{})
		a.known = known
	}
	told := a.told
	a.conn.mu.Unlock()
	if !told {
		select {
		case <-known:
		case <-a.Done():
		}
	}
	a.conn.mu.Lock()
	defer a.conn.mu.Unlock()
	return !a.refused
}

// claim says that a handler ends the arrival.
func (a *arrival) claim() { a.claimed.Store(true) }

// read says that the request has been received and decoded, or that it will not be.
func (a *arrival) read() {
	a.conn.mu.Lock()
	defer a.conn.mu.Unlock()
	if !a.decoded {
		a.decoded = true
		a.conn.all.arriving.Add(-1)
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
	if !a.decoded {
		a.decoded = true
		a.conn.all.arriving.Add(-1)
	}
	a.conn.all.room.leave(a.held)
	a.held = 0
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
