package nats

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/natsconn"
)

// watchDepth reports the depths to the observer at intervals, until the context ends.
func (s *session) watchDepth(ctx context.Context) {
	r := s.run
	if r.Observer == (unobserved{}) {
		return
	}
	for unknown := false; ctx.Err() == nil; {
		err := s.reportDepth(ctx)
		if err != nil && !unknown && ctx.Err() == nil {
			r.Logger.LogAttrs(ctx, slog.LevelWarn, "depths not known; the metrics keep their last values; "+
				"check the stream, and the permission for $JS.API", slog.Any("cause", err))
		}
		unknown = err != nil
		_ = backoff.Sleep(ctx, r.DepthInterval) // An error is the context's: the loop ends.
	}
}

// reportDepth counts the messages that wait and those that are handled, and the dead letters.
func (s *session) reportDepth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	r := s.run
	durable, err := s.js.Consumer(ctx, r.Stream, r.Name)
	if err != nil {
		return fmt.Errorf("look up the consumer %q of the stream %q: %w", r.Name, r.Stream, err)
	}
	info := durable.CachedInfo()
	r.Observer.Depth(r.Stream, int(info.NumPending)+info.NumAckPending) //nolint:gosec // no stream has so many
	if r.DeadLetterStream == "" {
		return nil
	}
	dead, err := natsconn.Find(ctx, s.js, r.DeadLetterStream)
	if err != nil {
		return fmt.Errorf("look up the stream %q: %w", r.DeadLetterStream, err)
	}
	r.Observer.DeadLetters(r.DeadLetterStream, int(dead.State.Msgs)) //nolint:gosec // no stream has so many
	return nil
}
