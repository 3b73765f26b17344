package orders

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/internal/ground/backoff"
)

// nothing is a business that does nothing.
func nothing(context.Context, *sql.Tx) error { return nil }

// declareAgain is how often the topology is tried while the broker is away.
const declareAgain = 2 * time.Second

// declare declares the topology, so that no message is unroutable before the consumers have started. A queue with
// other properties is an error. A broker that is away is tried again in the background: orders are taken without it.
func (s *Service) declare(ctx, background context.Context) error {
	topology := shop.Topology(s.config.PayWithin, s.config.Retries)
	err := topology.Apply(ctx, s.config.AMQP, nil)
	var mismatch *rabbitmqconsumer.MismatchError
	if err == nil || errors.As(err, &mismatch) {
		return err
	}
	s.running.Go(func() {
		for err != nil && !errors.As(err, &mismatch) && background.Err() == nil {
			s.config.Logger.Warn("topology not declared; trying again", slog.Any("cause", err))
			_ = backoff.Sleep(background, declareAgain)
			err = topology.Apply(background, s.config.AMQP, nil)
		}
		if background.Err() == nil {
			s.end(err)
		}
	})
	return nil
}

// sweepGrace is how much later than its ORDER_TIMEOUT an order is swept, and sweepBatch how many orders are read at
// once.
const (
	sweepGrace = 5 * time.Second
	sweepBatch = 100
)

// sweep cancels the overdue orders whose ORDER_TIMEOUT the broker has lost.
func (s *Service) sweep(ctx context.Context) {
	for backoff.Sleep(ctx, s.config.SweepEvery) == nil {
		closed, err := s.Sweep(ctx)
		if err != nil && ctx.Err() == nil {
			s.config.Logger.Warn("sweep ended early; the next sweep retries", slog.Any("cause", err))
		}
		if closed > 0 {
			s.config.Logger.Warn("overdue orders cancelled by the sweep: the broker lost their time-outs, or is late",
				slog.Int("orders", closed))
		}
	}
}

// Sweep cancels the orders that should have been timed out some time ago, in batches, and returns their number.
func (s *Service) Sweep(ctx context.Context) (closed int, err error) {
	deadline := time.Now().Add(-s.config.PayWithin - sweepGrace)
	for {
		n, err := s.shop.CloseOverdue(ctx, deadline, sweepBatch)
		if closed += n; err != nil || n == 0 {
			return closed, err
		}
	}
}
