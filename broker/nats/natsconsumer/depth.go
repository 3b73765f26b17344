package natsconsumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats/natsconn"
	"github.com/msghandler/msghandler/consumer/adapter"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// watchConsumer looks at the durable consumer at intervals, until the context ends.
func (s *session) watchConsumer(ctx context.Context, durable jetstream.Consumer) {
	r := s.run
	for unknown := false; ctx.Err() == nil; {
		err := s.lookAt(ctx, durable)
		forbidden := errors.Is(err, natsconn.ErrForbidden)
		if err != nil && !unknown && ctx.Err() == nil && (forbidden || r.Observer != (adapter.Unobserved{})) {
			r.Logger.LogAttrs(ctx, slog.LevelWarn, "depths and MaxDeliver of the durable consumer not known; the metrics keep "+
				"their last values; check the stream, and the user's permissions", slog.Any("cause", err))
		}
		unknown = err != nil
		_ = backoff.Sleep(ctx, r.DepthInterval) // An error is the context's: the loop ends.
	}
}

// lookAt takes a limit of deliveries from the durable consumer, and reports the depths.
func (s *session) lookAt(ctx context.Context, durable jetstream.Consumer) error {
	ctx, cancel := context.WithTimeout(ctx, ioTimeout)
	defer cancel()
	r := s.run
	info, err := s.info(ctx, durable)
	if err != nil {
		return fmt.Errorf("look up the consumer %q of the stream %q: %w", r.Name, r.Stream, err)
	}
	if info.Config.MaxDeliver != noLimit {
		r.Logger.LogAttrs(ctx, slog.LevelWarn, "MaxDeliver of the durable consumer was changed; JetStream would keep "+
			"messages past it without a dead letter; it is unlimited again; set MaxDeliveries of the process instead",
			slog.Int("max_deliver", info.Config.MaxDeliver))
		if _, err := r.open(s.js, s.refusals); err != nil {
			return err
		}
	}
	return s.reportDepth(ctx, info)
}

// info asks for the durable consumer.
func (s *session) info(ctx context.Context, durable jetstream.Consumer) (info *jetstream.ConsumerInfo, err error) {
	err = s.refusals.Ask(ctx, s.run.infoSubject(), func(ctx context.Context) (err error) {
		info, err = durable.Info(ctx)
		return err
	})
	return info, err
}

// reportDepth reports the messages that wait and those that are handled, and the dead letters.
func (s *session) reportDepth(ctx context.Context, info *jetstream.ConsumerInfo) error {
	r := s.run
	if r.Observer == (adapter.Unobserved{}) {
		return nil
	}
	r.Observer.Depth(r.Stream, int(info.NumPending)+info.NumAckPending) //nolint:gosec // no stream has so many
	if r.DeadLetterStream == "" {
		return nil
	}
	var dead *jetstream.StreamInfo
	err := s.refusals.Ask(ctx, "$JS.API.STREAM.INFO."+r.DeadLetterStream, func(ctx context.Context) (err error) {
		dead, err = natsconn.Find(ctx, s.js, r.DeadLetterStream)
		return err
	})
	if err != nil {
		return fmt.Errorf("look up the stream %q: %w", r.DeadLetterStream, err)
	}
	r.Observer.DeadLetters(r.DeadLetterStream, int(dead.State.Msgs)) //nolint:gosec // no stream has so many
	return nil
}
