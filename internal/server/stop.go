package server

import (
	"context"
	"time"
)

// linger is how long clients may take, after the last call has ended, to read their answers and to go by themselves.
const linger = 2 * time.Second

// lingerTick is how often is looked whether a call is under way: nothing tells it, and a stop has the time.
const lingerTick = 50 * time.Millisecond

// Stop refuses new calls and waits for those under way; when ctx ends first it cuts them off and returns ctx's error.
// Calls that only wait for a message's fate end at once with UNAVAILABLE: their Submit has been taken up. Whatever
// clients do, it waits for no answer to be read and no request to be finished once the calls have ended. It may be
// called again.
func (s *Server) Stop(ctx context.Context) error {
	s.once.Do(func() {
		s.health.Shutdown() // NOT_SERVING for good
		s.stop()
	})
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		s.grpc.GracefulStop()
	}()
	s.clients.dismiss()
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	go s.cutWhenIdle(ended)
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		s.clients.cut()
		go s.grpc.Stop() // it ends Serve, though handlers may still be in the store
		return ctx.Err()
	}
}

// cutWhenIdle cuts all clients off when no call has been under way for a while.
func (s *Server) cutWhenIdle(ctx context.Context) {
	tick := time.NewTicker(lingerTick)
	defer tick.Stop()
	for idle := time.Duration(0); idle < linger; idle += lingerTick {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.room.usedCalls.Load() > 0 {
			idle = 0
		}
	}
	s.clients.cut()
}
