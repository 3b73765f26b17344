package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/faults"
)

const (
	// callsOfDeed bounds the attempts of a call, and callPatience each of them.
	callsOfDeed  = 300
	callPatience = 5 * time.Second
)

// answered are the codes that end the attempts of a call.
var answered = []codes.Code{
	codes.OK, codes.AlreadyExists, codes.FailedPrecondition, codes.NotFound, codes.InvalidArgument,
}

// call makes a call at one coordinator after the other until one answers.
func (d *deed) call(
	ctx context.Context, what string, do func(context.Context, pb.MessageHandlerServiceClient) error,
) error {
	var err error
	w := d.producer.world
	at := w.Choices.Intn(d.key+" "+what+" at", len(d.producer.apis))
	for i := range callsOfDeed {
		limited, cancel := context.WithTimeout(ctx, callPatience)
		err = do(limited, d.producer.apis[(at+i)%len(d.producer.apis)])
		cancel()
		if slices.Contains(answered, status.Code(err)) {
			break
		}
		pause := w.pace.long(w.Choices, d.key+" "+what+" again", 100*time.Millisecond, time.Second)
		if sleep(ctx, pause) != nil {
			break
		}
	}
	w.Ledger.Noted(d.key, "producer", fmt.Sprintf("%s returns: %v", what, err))
	return err
}

// sendHalf sends a half message. In another state than PENDING the business must not begin.
func (d *deed) sendHalf(ctx context.Context, m *pb.Message) error {
	return d.call(ctx, "SendHalfMessage", func(ctx context.Context, api pb.MessageHandlerServiceClient) error {
		r, err := api.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
			Producer: directName, CallbackTarget: d.producer.target(), MarkerStore: directName, Message: m,
		})
		if err == nil && r.GetState() != pb.State_STATE_PENDING {
			err = status.Error(codes.FailedPrecondition, r.GetState().String())
		}
		return err
	})
}

// submit reports the commit of the business, and returns the state of its message. Where Submits are trusted, the
// answer means a stored verdict.
func (d *deed) submit(ctx context.Context, what string) (state pb.State, err error) {
	err = d.call(ctx, what, func(ctx context.Context, api pb.MessageHandlerServiceClient) error {
		r, err := api.Submit(ctx, &pb.SubmitRequest{Producer: directName, Id: d.id})
		state = r.GetState()
		return err
	})
	if err != nil || !d.trusts {
		return state, err
	}
	if state == pb.State_STATE_PENDING || state == pb.State_STATE_ABANDONED {
		d.producer.world.report("CONTRADICTION %s: a trusted Submit is answered with %v", d.key, state)
	}
	d.producer.mu.Lock()
	d.producer.trusted[d.key] = true
	d.producer.mu.Unlock()
	return state, nil
}

// commits ends the business, after a while, and says whether it committed.
func (d *deed) commits(ctx context.Context) bool {
	if sleep(ctx, within(d.producer.world.Choices, d.key+" works", 0, 3*time.Second)) != nil {
		return false
	}
	return d.producer.world.Ledger.Decide(d.key, faults.Committed) == faults.Committed
}

// commitAndSubmit submits one to three times, at any coordinators, at once or later.
func (d *deed) commitAndSubmit(ctx context.Context) error {
	if !d.commits(ctx) {
		return errRefused
	}
	var all sync.WaitGroup
	errs := make([]error, 1+d.producer.world.Choices.Intn(d.key+" Submits", 3))
	for i := range errs {
		all.Go(func() {
			what := fmt.Sprintf("Submit %d", i)
			if i > 0 {
				_ = sleep(ctx, d.producer.world.pace.long(d.producer.world.Choices, d.key+" "+what+" after", 0, 20*time.Second))
			}
			_, errs[i] = d.submit(ctx, what)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// commitInSilence leaves all to the questions.
func (d *deed) commitInSilence(ctx context.Context) error {
	d.commits(ctx)
	return nil
}

// rollBack ends the business, and says so or not.
func (d *deed) rollBack(ctx context.Context) error {
	d.producer.world.Ledger.Decide(d.key, faults.RolledBack)
	if d.producer.world.Choices.Intn(d.key+" says it", 2) == 0 {
		return nil
	}
	return d.call(ctx, "Rollback", d.sayRolledBack)
}

func (d *deed) sayRolledBack(ctx context.Context, api pb.MessageHandlerServiceClient) error {
	_, err := api.Rollback(ctx, &pb.RollbackRequest{Producer: directName, Id: d.id})
	return err
}

// submitEarly submits by mistake before the commit, which is no verdict unless Submits are trusted.
func (d *deed) submitEarly(ctx context.Context) error {
	if d.trusts {
		return d.commitAndSubmit(ctx)
	}
	if _, err := d.submit(ctx, "early Submit"); err != nil {
		return err
	}
	_ = sleep(ctx, within(d.producer.world.Choices, d.key+" thinks", 0, 5*time.Second))
	if d.producer.world.Choices.Intn(d.key+" rolls back", 3) > 0 {
		return d.rollBack(ctx)
	}
	return d.commitAndSubmit(ctx)
}

// untilSendable submits until the verdict is stored, for some time.
func (d *deed) untilSendable(ctx context.Context) bool {
	for range 30 {
		switch state, err := d.submit(ctx, "Submit"); {
		case err != nil:
			return false
		case state == pb.State_STATE_SENDABLE:
			return true
		case state != pb.State_STATE_PENDING:
			return false
		}
		if sleep(ctx, within(d.producer.world.Choices, d.key+" waits", 200*time.Millisecond, 2*time.Second)) != nil {
			return false
		}
	}
	return false
}

// rollBackTooLate rolls back by mistake after the verdict is stored.
func (d *deed) rollBackTooLate(ctx context.Context) error {
	if !d.commits(ctx) {
		return errRefused
	}
	if !d.untilSendable(ctx) {
		return nil
	}
	err := d.call(ctx, "late Rollback", d.sayRolledBack)
	if err == nil && ctx.Err() == nil {
		d.producer.world.report("CONTRADICTION %s: a Rollback after the verdict is accepted", d.key)
	}
	return nil
}

// sendOther sends other content under the id, which is refused, or the business is over by then.
func (d *deed) sendOther(ctx context.Context) error {
	other, _ := proto.Clone(d.message).(*pb.Message)
	other.Body = []byte("other")
	err := d.sendHalf(ctx, other)
	if err == nil && d.producer.world.Ledger.Fate(d.key) == faults.Undecided {
		d.producer.world.report("CORRUPTED %s: other content is accepted under its id", d.key)
	}
	return d.commitAndSubmit(ctx)
}

// loseRecord sends a message again whose record was lost, as by an operator's DEL, while it waits for its delay. What
// is left of the lost record is not that of the new message.
func (d *deed) loseRecord(ctx context.Context) error {
	if !d.commits(ctx) {
		return errRefused
	}
	if !d.untilSendable(ctx) {
		return nil
	}
	d.producer.world.checking.loseRecord(directName, d.id)
	defer d.producer.world.checking.foundRecord(directName, d.id)
	err := d.call(ctx, "SendHalfMessage anew", func(ctx context.Context, api pb.MessageHandlerServiceClient) error {
		_, err := api.SendHalfMessage(ctx, &pb.SendHalfMessageRequest{
			Producer: directName, CallbackTarget: d.producer.target(), MarkerStore: directName, Message: d.message,
		})
		return err
	})
	if err != nil {
		return err
	}
	_, err = d.submit(ctx, "Submit anew")
	return err
}
