package orders

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

const (
	// mostAttempts is how many ids are tried for one announcement, and how often each of them.
	mostAttempts = 20
	// sendAgain is the pause before a message is sent again under its id.
	sendAgain = 100 * time.Millisecond
)

// send runs a business and announces it, both or neither. An earlier attempt may have left a half message with another
// time in its body, or may have been rolled back: then the announcement gets the next id, such as 1001-paid-2. The
// business runs once at most, because its UPDATE changes a row only once.
func send[P any](
	ctx context.Context, s *Service, a announcement[P], fail Failure, business sqlmarker.Business,
) (err error) {
	for attempt := 1; attempt <= mostAttempts; attempt++ {
		suffix := ""
		if attempt > 1 {
			suffix = fmt.Sprintf("-%d", attempt)
		}
		m, failed := a.message(ctx, suffix)
		if failed != nil {
			return failed
		}
		err = s.sendUnderID(ctx, m, fail, business)
		if !errors.Is(err, producer.ErrExists) && !errors.Is(err, producer.ErrRolledBack) {
			break
		}
	}
	if errors.Is(err, producer.ErrAlreadyCommitted) {
		return nil // an earlier attempt did it
	}
	return err
}

// sendUnderID sends a message again under its id while nothing was committed, because the database was slow or refused
// the transaction for a reason that passes.
func (s *Service) sendUnderID(
	ctx context.Context, m producer.Message, fail Failure, business sqlmarker.Business,
) (err error) {
	for range mostAttempts {
		err = s.sendOnce(ctx, m, fail, business)
		passes := errors.Is(err, producer.ErrMarkers) || errors.Is(err, producer.ErrSendAgain)
		if !passes || backoff.Sleep(ctx, sendAgain) != nil {
			return err
		}
	}
	return err
}

// sendOnce is the whole pattern. Send stores the half message and runs the business in a transaction with the marker;
// the message goes out if, and only if, the transaction commits. Without a coordinator, Commit writes the message into
// the transaction, and the relay publishes it.
func (s *Service) sendOnce(
	ctx context.Context, m producer.Message, fail Failure, business sqlmarker.Business,
) error {
	defer s.markers.Wake() // the business may have enqueued more
	switch {
	case s.producer == nil:
		return s.markers.Commit(ctx, m, business)
	case fail == Silent || fail == CrashAfterCommit:
		return s.commitWithoutSubmit(ctx, m, business, fail)
	}
	return s.markers.Send(ctx, s.producer, m, business)
}

// commitWithoutSubmit takes the steps of Send without the Submit, as if the Submit had been lost.
func (s *Service) commitWithoutSubmit(
	ctx context.Context, m producer.Message, business sqlmarker.Business, fail Failure,
) error {
	state, err := s.producer.SendHalf(ctx, m)
	switch {
	case err != nil:
		return err
	case state == producer.StateRolledBack:
		return producer.ErrRolledBack
	case state != producer.StatePending:
		return nil
	}
	if err := s.markers.InTx(m, business)(ctx); err != nil {
		return err
	}
	if fail == CrashAfterCommit {
		return die()
	}
	return nil
}

// Announce announces a message without a business, such as an event of a newer version of the shop.
func (s *Service) Announce(ctx context.Context, m producer.Message) error {
	return s.markers.Commit(ctx, m, nothing)
}

// ErrDeclined is why a payment with the failure Declined fails.
var ErrDeclined = errors.New("the buyer's bank declined")

// strike causes the failure within the transaction.
func (f Failure) strike() error {
	switch f {
	case Declined:
		return ErrDeclined
	case CrashBeforeCommit:
		return die()
	}
	return nil
}

// die ends the process as a power cut would: nothing is closed or flushed.
func die() error {
	if err := syscall.Kill(os.Getpid(), syscall.SIGKILL); err != nil {
		return fmt.Errorf("could not crash: %w", err)
	}
	select {}
}
