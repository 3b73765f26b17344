package server

import (
	"context"
	"errors"
	"time"

	"github.com/msghandler/msghandler/internal/ground/lifecycle"
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
	ended, cancel := context.WithCancel(ctx)
	defer cancel()
	var drain lifecycle.Group
	drain.Go(s.grpc.GracefulStop)
	s.clients.dismiss()
	s.background.Go(func() { s.cutWhenIdle(ended) })
	if err := drain.Wait(ctx); err != nil {
		s.clients.cut()
		s.background.Go(s.grpc.Stop) // it ends Serve, though handlers may still be in the store
		return err
	}
	return s.waitForBatches(ctx)
}

// waitForBatches waits for the batches that are in the store though their callers have left. The store is closed after
// the server.
func (s *Server) waitForBatches(ctx context.Context) error {
	return errors.Join(s.creates.Wait(ctx), s.submits.Wait(ctx), s.verdicts.Wait(ctx), s.rollbacks.Wait(ctx))
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
