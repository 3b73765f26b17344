package server

import (
	"context"
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
)

// linger is how long clients may take, after the last call has ended, to read their answers and to close.
const linger = 2 * time.Second

// lingerTick is how often Stop checks for calls in flight.
const lingerTick = 50 * time.Millisecond

// Stop refuses new calls and waits for the calls in flight. When ctx ends first, Stop cuts them off and returns ctx's
// error. Calls that only wait for a message's outcome end at once with UNAVAILABLE: their Submit is stored. Producers
// that attend are asked to open their streams elsewhere, and open questions may still be answered. Once the calls and
// questions have ended, Stop waits for no client to read an answer or to finish a request. Stop may be called again.
func (s *Server) Stop(ctx context.Context) error {
	var drain lifecycle.Group
	s.once.Do(func() {
		s.health.Shutdown() // NOT_SERVING for good
		if s.config.Attendance != nil {
			s.config.Attendance.Drain()
		}
		s.stop()
		drain.Go(func() { _ = s.http.Stop(ctx) }) // when ctx ends first, all connections are cut
	})
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	drain.Go(s.grpc.GracefulStop)
	s.guard.Dismiss()
	s.background.Go(func() { s.cutWhenIdle(ended) })
	if err := drain.Wait(ctx); err != nil {
		s.guard.Cut()
		s.background.Go(s.grpc.Stop) // it ends Serve, though handlers may still be in the store
		return err
	}
	cancel()
	// The store is closed after the server, so batches whose callers have left must end first.
	return errors.Join(s.submits.Wait(ctx), s.guard.Wait(ctx), s.background.Wait(ctx))
}

// cutWhenIdle cuts all clients off when no call and no question has been in flight for a while.
func (s *Server) cutWhenIdle(ctx context.Context) {
	tick := time.NewTicker(lingerTick)
	defer tick.Stop()
	for idle := time.Duration(0); idle < linger; idle += lingerTick {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.inFlight.calls.Load() > 0 || s.config.Attendance != nil && s.config.Attendance.Streams() > 0 {
			idle = 0
		}
	}
	s.guard.Cut()
}
