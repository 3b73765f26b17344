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

// levelOfLitter is for what costs nothing but room.
const levelOfLitter = slog.LevelInfo

// What is said of a business that committed when its message is in danger.
const (
	textGone = "the coordinator has given up a message whose business committed; it is not delivered: " +
		"undo the business, or send the message under a new id"
	textUnmarked = "a committed business has no marker; its message may end abandoned"
	textNoneLeft = "a committed business left no marker in its transaction"
)

// textRollbackLost is said of a call that was lost and costs nothing: Confirm finds the rolled-back marker.
const textRollbackLost = "a rollback was lost; the coordinator will ask"

// lateMarkerTimeout is how long a marker that could not be stored is tried again in the background. Confirm answers
// from memory meanwhile, so only the death of the process within that time needs an operator.
const lateMarkerTimeout = 10 * time.Minute

// Send stores a half message, runs the business, marks that it committed and submits in the background. It returns nil
// when the business has committed. See the package comment for what each error means and what the business promises; an
// error of the business is wrapped, and its text is sent to the coordinator as the reason of the rollback.
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
	// Deferred, so that a business that panics is neither marked nor rolled back, and Confirm may look for itself.
	defer p.inflight.end(m.ID)
	if err := p.prepare(ctx, m, known); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	if err := business(ctx); err != nil {
		return p.failed(ctx, m.ID, err)
	}
	return p.committed(ctx, m.ID)
}

// prepare stores the half message and returns nil only if the business is to run. The markers are looked at first: a
// store that is away then leaves no half message behind, and what another replica commits later shows in the state.
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

// failed rolls back what the business is certain not to have committed. It does so before Send returns, so that nobody
// can begin the id anew in between. Confirm makes up for a Rollback that does not arrive. What may be sent again is
// left as it is: only a marker can decide it, and there is none.
func (p *Producer) failed(ctx context.Context, id string, cause error) error {
	if outcomeUnknown(cause) {
		if errors.Is(cause, ErrOutcomeUnknown) {
			return fmt.Errorf("business of %s: %w", id, cause)
		}
		return fmt.Errorf("business of %s: %w", id, Unsure(cause))
	}
	if errors.Is(cause, ErrSendAgain) {
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

// rollbackLater goes on with a Rollback in the background. Confirm makes up for one that does not arrive, later.
func (p *Producer) rollbackLater(id, reason string, lost error) {
	started := p.background.run(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, p.config.SubmitTimeout)
		defer cancel()
		// Not without the marker: another run of the id may hold it, and commit.
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

// giveUp marks an id as rolled back, unless it is known to have committed in an earlier run: by its marker, or by the
// business data that Resolve sees. It returns what stands.
func (p *Producer) giveUp(ctx context.Context, id string) (marker.Verdict, error) {
	if p.config.Resolve != nil {
		verdict, err := p.resolve(ctx, id, false)
		if err != nil || verdict == marker.Committed {
			return verdict, err
		}
	}
	return p.markRolledBack(ctx, id)
}

// submitLater submits in the background. That it is lost loses nothing: the coordinator asks.
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

// judgeSubmit tells a Submit that was merely lost from one that says that a committed message is gone.
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

// undeliverable tells of a committed message that the coordinator will not deliver, where no caller is left to hear it.
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

// markLater keeps in memory that an id committed, for Confirm, and tries to store the marker in the background.
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

// lateMarker stores the marker of an id that is kept, unless DeleteBusiness comes first.
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
		// It stays in memory, so Confirm can go on answering for as long as the process lives.
		p.complaints.add(slog.LevelError, textUnmarked, id, err)
		return
	}
	p.inflight.forget(id)
}
