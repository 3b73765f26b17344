package producer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/ground/backoff"
	"github.com/msghandler/msghandler/internal/ground/lifecycle"
	"github.com/msghandler/msghandler/producer/marker"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// maxReason is how much of a rollback's reason the coordinator keeps, in bytes at least.
const maxReason = 1000

// SendHalf stores a half message and returns the message's state: StatePending for a new message, or the state that
// an earlier call has led to. SendHalf retries until SendTimeout or the end of the context. Run the transaction only
// after StatePending and no error.
func (p *Producer) SendHalf(ctx context.Context, m Message) (State, error) {
	if err := p.background.enter(); err != nil {
		return 0, err
	}
	defer p.background.leave()
	return p.sendHalf(ctx, m)
}

func (p *Producer) sendHalf(ctx context.Context, m Message) (State, error) {
	wire, refused := m.onWire()
	if refused != nil {
		return 0, refused
	}
	p.inflight.store(m.ID)
	defer p.inflight.stored(m.ID)
	ctx, cancel := context.WithTimeout(ctx, p.config.SendTimeout)
	defer cancel()
	if _, err := p.markerStore(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w: %w", m.ID, ErrMarkers, err)
	}
	if err := p.attendance.await(ctx, m.ID); err != nil {
		return 0, err
	}
	return retry(ctx, func(ctx context.Context) (State, *Error) {
		return gathered(ctx, p.halves, opSendHalf, m.ID, wire)
	})
}

// Submit reports that the transaction of an id has committed: Submit leaves the marker and tells the coordinator, and
// retries both while the context lasts. It returns the message's state. After an error nothing is lost once the
// marker is there: the coordinator asks. Without the marker the error is ErrMarkers. If the marker belongs in the
// transaction and was missing, the message goes out and the error is ErrUnmarked. If the message was rolled back
// before, by another run of the id or by this caller, the error is ErrContradicted.
func (p *Producer) Submit(ctx context.Context, id string) (State, error) {
	if err := p.background.enter(); err != nil {
		return 0, err
	}
	defer p.background.leave()
	if err := checkID(opSubmit, id); err != nil {
		return 0, err
	}
	standing, err := p.markCommitted(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("submit %s: %w: %w", id, ErrMarkers, err)
	}
	if standing.verdict == marker.RolledBack {
		return 0, fmt.Errorf("submit %s: %w", id, ErrContradicted)
	}
	state, err := p.submit(ctx, id)
	switch {
	case errors.Is(err, ErrRolledBack):
		err = contradicted(err)
	case err == nil && standing.unmarked:
		err = fmt.Errorf("submit %s: %w", id, ErrUnmarked)
	}
	return state, err
}

func (p *Producer) submit(ctx context.Context, id string) (State, error) {
	return retry(ctx, func(ctx context.Context) (State, *Error) {
		return gathered(ctx, p.submits, opSubmit, id, id)
	})
}

// Wait submits a message whose transaction has committed, and waits until the broker has the message or the message
// has ended in another way; the returned state says which. Wait leaves no marker: call Wait after Send or Submit.
// Wait lasts as long as the context. If the message was rolled back, the error is ErrContradicted.
func (p *Producer) Wait(ctx context.Context, id string) (State, error) {
	if err := p.background.enter(); err != nil {
		return 0, err
	}
	defer p.background.leave()
	if err := checkID(opWait, id); err != nil {
		return 0, err
	}
	request := &pb.SubmitRequest{Producer: p.config.Name, Id: id, Wait: pb.Wait_WAIT_DONE}
	state, err := retry(ctx, func(ctx context.Context) (State, *Error) {
		// A wait is split into calls of waitTimeout, so that a connection which died in silence ends the call.
		call, cancel := context.WithTimeout(ctx, waitTimeout)
		defer cancel()
		response, err := p.coordinator.Submit(call, request)
		failure := fromRPC(opWait, id, err)
		if failure != nil && failure.Code == codes.DeadlineExceeded {
			failure.kind = errNotYet
		}
		deadline, has := ctx.Deadline()
		if failure != nil && failure.Reason == waitEnded && has && time.Until(deadline) < answerTime {
			<-ctx.Done() // another call would be too short to say as much as this one
		}
		return response.GetState(), failure
	})
	if errors.Is(err, ErrRolledBack) {
		err = contradicted(err)
	}
	return state, err
}

// errNotYet is the kind of error of a Wait whose call reached waitTimeout.
var errNotYet = errors.New("its fate is not decided yet")

// waitEnded is the reason of a coordinator that ends a wait, less than answerTime before the deadline of the call.
const (
	waitEnded  = "WAIT_ENDED"
	answerTime = 250 * time.Millisecond
)

// waitTimeout bounds one call of Wait, which is then repeated.
const waitTimeout = 30 * time.Second

// Rollback reports that the transaction of an id has failed and that nothing of the transaction was, or will be,
// committed. Rollback leaves a rolled-back marker and has the message removed, and retries both while the context
// lasts. The reason is for the coordinator's log. If the id is known to have committed, the error is
// ErrAlreadyCommitted and the message is delivered. Without the marker the error is ErrMarkers, and the coordinator
// asks about the message later.
func (p *Producer) Rollback(ctx context.Context, id, reason string) error {
	if err := p.background.enter(); err != nil {
		return err
	}
	defer p.background.leave()
	if err := checkID(opRollback, id); err != nil {
		return err
	}
	standing, err := markRolledBack(ctx, p.config.Markers, id)
	switch {
	case err != nil:
		return fmt.Errorf("rollback %s: %w: %w", id, ErrMarkers, err)
	case standing == marker.Committed:
		return fmt.Errorf("rollback %s: %w", id, ErrAlreadyCommitted)
	}
	return p.rollback(ctx, id, reason)
}

// rollback has the message removed. The marker stays: a slower run of the id may still commit, and must learn from
// the marker about the rollback. If the coordinator knows the message as committed, the marker is wrong and is
// withdrawn.
func (p *Producer) rollback(ctx context.Context, id, reason string) error {
	request := &pb.RollbackRequest{Producer: p.config.Name, Id: id, Reason: shortened(reason)}
	_, err := retry(ctx, func(ctx context.Context) (State, *Error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		response, err := p.coordinator.Rollback(ctx, request)
		return response.GetState(), fromRPC(opRollback, id, err)
	})
	if errors.Is(err, ErrAlreadyCommitted) {
		p.withdraw(ctx, id)
	}
	return err
}

// withdraw removes a wrong rolled-back marker. A store that is no Withdrawer never holds one.
func (p *Producer) withdraw(ctx context.Context, id string) {
	withdrawer, can := p.config.Markers.(marker.Withdrawer)
	if !can {
		return
	}
	if err := guard(func() error { return withdrawer.Withdraw(ctx, []string{id}) }); err != nil {
		p.complaints.add(slog.LevelWarn, "a wrong rolled-back marker could not be withdrawn; it stands until it expires",
			id, err)
	}
}

// markCommitted leaves the marker of a commit, and tries again while the context lasts.
func (p *Producer) markCommitted(ctx context.Context, id string) (standing found, err error) {
	err = again(ctx, func(ctx context.Context) (err error) {
		standing, err = ofMarkers(ctx, p.marks, id)
		return err
	})
	return standing, err
}

// markRolledBack leaves the marker of a failure, and tries again while the context lasts.
func markRolledBack(ctx context.Context, markers marker.Store, id string) (standing marker.Verdict, err error) {
	err = again(ctx, func(ctx context.Context) error {
		all, err := put(ctx, markers, []string{id}, marker.RolledBack)
		if standing = all[id]; err == nil && !standing.Definite() {
			return fmt.Errorf("the store left %s out", id)
		}
		return err
	})
	return standing, err
}

// again calls the marker store until a call succeeds or the context ends, and then returns the store's last error. A
// panic is not retried.
func again(ctx context.Context, call func(ctx context.Context) error) error {
	for failures := 0; ; failures++ {
		err := call(ctx)
		var panicked *lifecycle.PanicError
		if err == nil || errors.As(err, &panicked) {
			return err
		}
		if backoff.Sleep(ctx, retrySteps.Delay(failures)) != nil {
			return err
		}
	}
}

// checkID refuses an id that would make the whole batch fail.
func checkID(op, id string) error {
	if utf8.ValidString(id) {
		return nil
	}
	return &Error{
		Op: op, ID: strings.ToValidUTF8(id, "?"), Code: codes.InvalidArgument, Text: "id is not valid UTF-8",
		kind: ErrRejected,
	}
}

// shortened cuts a reason to the length that the coordinator keeps.
func shortened(reason string) string {
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	return strings.ToValidUTF8(reason, "")
}
