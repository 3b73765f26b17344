package server

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// A request that has begun and does not arrive holds a call and its announced bytes. So its time is bounded: the
// connection of such a request is closed, and what the connection held is free.
const (
	// arriveTick is how often connections are looked at.
	arriveTick = 10 * time.Second
	// arriveTicks is how many whole ticks a request has to arrive: half a minute, for which the SDKs try as a whole. The
	// largest request comes in that time through 5 Mbit/s.
	arriveTicks = 3
)

// arriving counts the requests of a connection that have begun and are not all there, by the tick in which they began.
// One place more than a request has ticks is for the tick that runs: two atomic steps are all that a request costs.
type arriving [arriveTicks + 1]atomic.Int32

// caller tells handlers which connection a request comes by.
type caller struct {
	credentials.AuthInfo
	conn *connection
}

// arrive reads a request, as decode does, and counts it for its connection while it is on its way.
func arrive(ctx context.Context, decode func(any) error, v any) error {
	if encodingOf(ctx) != "" {
		return errCompressed
	}
	a := arrivalOf(ctx)
	if a == nil {
		return read(decode, v)
	}
	began := &a.conn.arriving[a.conn.all.tick.Load()%uint32(len(arriving{}))]
	began.Add(1)
	defer began.Add(-1)
	defer a.setDecoded()
	if !a.admitted() {
		return errNoRoomLeft
	}
	return read(decode, v)
}

// arrive is arrive, with errors for the client.
func (s *Server) arrive(ctx context.Context, method string, decode func(any) error, v any) error {
	err := arrive(ctx, decode, v)
	if errors.Is(err, errNoRoomLeft) {
		s.clients.sweep()
	}
	return s.refuseUnread(ctx, method, err)
}

// watch closes connections with requests that do not arrive, until the context ends.
func (c *connections) watch(ctx context.Context, logger *slog.Logger) {
	ticker := time.NewTicker(arriveTick)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			for _, one := range c.overdue() {
				logger.Warn("a connection was closed: a request that began on it did not arrive",
					"client", one.RemoteAddr().String(), "within", arriveTicks*arriveTick)
				_ = one.Conn.Close() // gRPC finds it closed, and says the same to one
			}
		}
	}
}

// overdue gives the connections with requests that have been arriving since the tick whose place the next one takes,
// and begins that one. Not the other way round: what begins meanwhile would count as what began so long ago.
func (c *connections) overdue() (late []*connection) {
	next := c.tick.Load() + 1
	defer c.tick.Store(next)
	place := next % uint32(len(arriving{}))
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.addresses, func(_ netip.Addr, a *address) bool { return a.idle() })
	for one := range c.open {
		one.sweep()
		if one.arriving[place].Load() > 0 {
			late = append(late, one)
		}
	}
	return late
}
