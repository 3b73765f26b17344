package nats

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/natsconn"
)

// watchConsumer looks at the durable consumer at intervals, until the context ends.
func (s *session) watchConsumer(ctx context.Context) {
	r := s.run
	for unknown := false; ctx.Err() == nil; {
		err := s.lookAt(ctx)
		if err != nil && !unknown && ctx.Err() == nil && r.Observer != (unobserved{}) {
			r.Logger.LogAttrs(ctx, slog.LevelWarn, "depths not known; the metrics keep their last values; "+
				"check the stream, and the permission for $JS.API", slog.Any("cause", err))
		}
		unknown = err != nil
		_ = backoff.Sleep(ctx, r.DepthInterval) // An error is the context's: the loop ends.
	}
}

// lookAt takes a limit of deliveries from the durable consumer, and reports the depths.
func (s *session) lookAt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	r := s.run
	durable, err := s.js.Consumer(ctx, r.Stream, r.Name)
	if err != nil {
		return fmt.Errorf("look up the consumer %q of the stream %q: %w", r.Name, r.Stream, err)
	}
	info := durable.CachedInfo()
	if info.Config.MaxDeliver != noLimit {
		r.Logger.LogAttrs(ctx, slog.LevelWarn, "MaxDeliver of the durable consumer was changed; JetStream would keep "+
			"messages past it without a dead letter; it is unlimited again; set MaxDeliveries of the process instead",
			slog.Int("max_deliver", info.Config.MaxDeliver))
		if _, err := r.open(s.js); err != nil {
			return err
		}
	}
	return s.reportDepth(ctx, info)
}

// reportDepth reports the messages that wait and those that are handled, and the dead letters.
func (s *session) reportDepth(ctx context.Context, info *jetstream.ConsumerInfo) error {
	r := s.run
	if r.Observer == (unobserved{}) {
		return nil
	}
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
