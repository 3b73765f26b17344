package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/producer/marker"
)

// levelNotDeleted is for markers that remain: they cost nothing but space.
const levelNotDeleted = slog.LevelInfo

// Log lines about a committed business whose message is in danger.
const (
	textGone = "the coordinator has given up a message whose business committed; it is not delivered: " +
		"undo the business, or send the message under a new id"
	textUnmarked = "a committed business has no marker; its message may end abandoned"
	textNoneLeft = "a committed business left no marker in its transaction"
)

// textRollbackLost is for a Rollback that did not arrive. This costs nothing: Confirm finds the rolled-back marker.
const textRollbackLost = "a rollback was lost; the coordinator will ask"

// lateMarkerTimeout bounds the retries of a late marker in the background. Confirm answers from memory meanwhile, so
// only the death of the process within this time needs an operator.
const lateMarkerTimeout = 10 * time.Minute

// Send stores a half message, runs the business, marks its commit and submits in the background. Send returns nil
// when the business has committed. The package comment explains each error and the contract of the business. An error
// of the business is wrapped, and its text is sent to the coordinator as the reason of the rollback.
func (p *Producer) Send(ctx context.Context, m Message, business func(ctx context.Context) error) error {
	if err := p.background.enter(); err != nil {
		return err
	}
	defer p.background.leave()
	if err := checkID(opSendHalf, m.ID); err != nil {
		return err
	}
	known, err := p.inflight.begin(ctx, m.ID)
	if err != nil {
		return fmt.Errorf("send %s: %w", m.ID, err)
	}
	// Deferred, so that a business that panics is neither marked nor rolled back, and Confirm can look for the marker.
	defer p.inflight.end(m.ID)
	if err := p.prepare(ctx, m, known); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := business(ctx); err != nil {
		return p.failed(ctx, m.ID, err)
	}
	return p.committed(ctx, m.ID)
}

// prepare stores the half message and returns nil only if the business is to run. The markers are looked up first: an
// unavailable store then leaves no half message behind, and a later commit of another replica shows in the state.
func (p *Producer) prepare(ctx context.Context, m Message, known marker.Verdict) error {
	verdict, err := p.lookup(ctx, m.ID, known)
	if err != nil {
		return fmt.Errorf("%s: %w: %w", m.ID, ErrMarkers, err)
	}
	if verdict == marker.RolledBack {
		return fmt.Errorf("%s: %w", m.ID, ErrRolledBack)
	}
	state, err := p.sendHalf(ctx, m)
	switch {
	case err != nil:
		return err
	case verdict == marker.Committed && (state == StatePending || state == StateAbandoned):
		p.submitLater(m.ID)
		return fmt.Errorf("%s: %w", m.ID, ErrAlreadyCommitted)
	case verdict == marker.Committed && state == StateRolledBack:
		return fmt.Errorf("%s: %w", m.ID, ErrContradicted)
	case state != StatePending:
		return fail(opSendHalf, m.ID, state)
	}
	return nil
}

func (p *Producer) lookup(ctx context.Context, id string, known marker.Verdict) (marker.Verdict, error) {
	if known.Definite() {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.config.MarkerTimeout)
	defer cancel()
	standing, err := ofMarkers(ctx, p.lookups, id)
	return standing.verdict, err
}

// committed marks and submits. The caller's context has no say any more: the business has committed.
func (p *Producer) committed(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.MarkerTimeout)
	defer cancel()
	standing, err := ofMarkers(ctx, p.marks, id)
	switch {
	case err != nil:
		p.markLater(id, err)
	case standing.verdict == marker.RolledBack:
		return fmt.Errorf("send %s: %w", id, ErrContradicted)
	}
	p.submitLater(id)
	if standing.unmarked {
		return fmt.Errorf("send %s: %w", id, ErrUnmarked)
	}
	return nil
}

// failed rolls the message of a failed business back, unless the outcome is uncertain. The rollback ends before Send
// returns, so that no other run of the id begins in between. Confirm makes up for a Rollback that does not arrive. A
// message that may be sent again stays PENDING: only a marker can decide, and there is none.
func (p *Producer) failed(ctx context.Context, id string, cause error) error {
	if outcomeUnknown(cause) {
		if errors.Is(cause, ErrOutcomeUnknown) {
			return fmt.Errorf("business of %s: %w", id, cause)
		}
		return fmt.Errorf("business of %s: %w", id, Unsure(cause))
	}
	if errors.Is(cause, marker.ErrOtherStore) {
		p.identity.known.Store(nil) // the next half message names the store that is there
	}
	if errors.Is(cause, ErrSendAgain) && !errors.Is(cause, ErrPermanent) {
		return fmt.Errorf("business of %s: %w", id, cause)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.config.RollbackTimeout)
	defer cancel()
	standing, err := p.giveUp(ctx, id)
	if standing == marker.Committed {
		p.submitLater(id)
		return fmt.Errorf("business of %s: %w, though this run of it failed: %w", id, ErrAlreadyCommitted, cause)
	}
	if err == nil {
		err = p.rollback(ctx, id, cause.Error())
	}
	switch {
	case errors.Is(err, ErrAlreadyCommitted):
		return fmt.Errorf("business of %s failed: %w: %w", id, err, cause)
	case err != nil:
		p.rollbackLater(id, cause.Error(), err)
	}
	return fmt.Errorf("business of %s: %w", id, cause)
}

// rollbackLater retries a Rollback in the background. Confirm makes up for a Rollback that does not arrive.
func (p *Producer) rollbackLater(id, reason string, lost error) {
	started := p.background.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, p.config.SubmitTimeout)
		defer cancel()
		// The marker comes first: another run of the id may hold the marker, and commit.
		standing, err := p.giveUp(ctx, id)
		switch {
		case err == nil && standing == marker.Committed:
			_, err = p.submit(ctx, id)
			p.judgeSubmit(id, err)
			return
		case err == nil:
			err = p.rollback(ctx, id, reason)
		}
		if err != nil {
			p.complaints.add(slog.LevelWarn, textRollbackLost, id, err)
		}
	})
	if !started {
		p.complaints.add(slog.LevelWarn, textRollbackLost, id, lost)
	}
}

// giveUp marks an id as rolled back, unless an earlier run is known to have committed: by its marker, or by the
// business data that Resolve sees. giveUp returns the id's verdict afterwards.
func (p *Producer) giveUp(ctx context.Context, id string) (marker.Verdict, error) {
	if p.config.Resolve != nil {
		verdict, err := p.resolve(ctx, id, false)
		if err != nil || verdict == marker.Committed {
			return verdict, err
		}
	}
	return markRolledBack(ctx, p.config.Markers, id)
}

// submitLater submits in the background. A lost Submit loses nothing: the coordinator asks.
func (p *Producer) submitLater(id string) {
	started := p.background.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, p.config.SubmitTimeout)
		defer cancel()
		_, err := p.submit(ctx, id)
		p.judgeSubmit(id, err)
	})
	if !started {
		p.complaints.add(slog.LevelWarn, "too many submits are under way; the coordinator will ask", id, nil)
	}
}

// judgeSubmit separates a lost Submit from the answer that a committed message is gone.
func (p *Producer) judgeSubmit(id string, err error) {
	var failure *Error
	switch {
	case err == nil:
	case errors.Is(err, ErrRolledBack):
		p.undeliverable(id, contradicted(err))
	case errors.As(err, &failure) && (failure.Code == codes.FailedPrecondition || failure.Code == codes.NotFound):
		p.undeliverable(id, err)
	default:
		p.complaints.add(slog.LevelWarn, "a submit was lost; the coordinator will ask", id, err)
	}
}

// undeliverable reports a committed message that the coordinator will not deliver, after its Send has returned.
func (p *Producer) undeliverable(id string, err error) {
	p.complaints.always(textGone, id, err)
	if p.config.OnUndeliverable == nil {
		return
	}
	failure := guard(func() error {
		p.config.OnUndeliverable(id, err)
		return nil
	})
	if failure != nil {
		p.complaints.add(slog.LevelError, "Config.OnUndeliverable panicked", id, failure)
	}
}

// markLater keeps a committed id in memory, for Confirm, and retries the marker in the background.
func (p *Producer) markLater(id string, cause error) {
	kept := p.inflight.keep(id)
	if kept {
		kept = p.background.run(func(ctx context.Context) { p.lateMarker(ctx, id) })
	}
	if kept {
		p.complaints.add(slog.LevelWarn, "a marker could not be stored yet; it is kept in memory", id, cause)
		return
	}
	p.complaints.add(slog.LevelError, textUnmarked, id, cause)
}

// lateMarker stores the marker of a kept id, unless DeleteBusiness comes first.
func (p *Producer) lateMarker(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, lateMarkerTimeout)
	defer cancel()
	err := again(ctx, func(ctx context.Context) error {
		if !p.inflight.keeps(id) {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, p.config.MarkerTimeout)
		defer cancel()
		standing, err := ofMarkers(ctx, p.marks, id)
		switch {
		case err != nil:
		case standing.verdict == marker.RolledBack:
			p.undeliverable(id, ErrContradicted)
		case standing.unmarked:
			p.complaints.add(slog.LevelError, textNoneLeft, id, ErrUnmarked)
		}
		return err
	})
	if err != nil {
		// The id stays in memory, so Confirm can answer for as long as the process lives.
		p.complaints.add(slog.LevelError, textUnmarked, id, err)
		return
	}
	p.inflight.forget(id)
}
