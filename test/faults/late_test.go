package faults

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// operator looks at messages and decides about parked messages.
type operator struct{ adminv1.AdminServiceClient }

func newOperator(w *world) operator {
	w.t.Helper()
	conn, err := grpc.NewClient(w.coordinators[1].grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { conn.Close() })
	return operator{adminv1.NewAdminServiceClient(conn)}
}

// sees waits until a message has that state; without a state sees waits until there is no such message.
func (o operator) sees(ctx context.Context, producer, id string, state pb.State) error {
	ctx, cancel := context.WithTimeout(ctx, patience/2) // so that the load ends, and the states are reported
	defer cancel()
	for {
		answer, err := o.GetMessage(ctx, &adminv1.GetMessageRequest{Producer: producer, Id: id})
		if status.Code(err) == codes.NotFound && state == pb.State_STATE_UNSPECIFIED {
			return nil
		}
		if err == nil && answer.GetRecord().GetState() == state {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s/%s is %v (%v), not %v", producer, id, answer.GetRecord().GetState(),
				status.Code(err), state)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// lists says whether a message is on the list of a state, as an operator pages through the list.
func (o operator) lists(ctx context.Context, producer, id string, state pb.State) (bool, error) {
	request := &adminv1.ListMessagesRequest{
		Filter:   &adminv1.MessageFilter{State: state, Producer: producer},
		PageSize: 50,
	}
	for more := true; more; more = request.PageToken != "" {
		page, err := o.ListMessages(ctx, request)
		if err != nil {
			return false, err
		}
		for _, r := range page.GetRecords() {
			if r.GetMessage().GetId() == id {
				return true, nil
			}
		}
		request.PageToken = page.GetNextPageToken()
	}
	return false, nil
}

func named(producer, id string) []*adminv1.MessageName {
	return []*adminv1.MessageName{{Producer: producer, Id: id}}
}

func (o operator) retry(ctx context.Context, producer, id string) error {
	_, err := o.RetryMessages(ctx, &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: named(producer, id)},
		Reason:    "a person has looked",
	})
	return err
}

func (o operator) discard(ctx context.Context, producer, id string) error {
	_, err := o.DiscardMessages(ctx, &adminv1.DiscardMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: named(producer, id)},
		Reason:    "a person has looked",
	})
	return err
}

func lateUsers(w *world) []user {
	hesitant := &late{plain: newPlain(w, "hesitant"), operator: newOperator(w)}
	hesitant.open = true
	strict := &tooLateToCommit{plain: newPlain(w, "strict"), operator: newOperator(w)}
	sdk := &lateSDK{service: newService(w, "hesitant-sdk", memory.New()), operator: newOperator(w)}
	sdk.open = true
	shop := &lateShop{shop: newShop(w, "hesitant-sql", newPostgreSQL(w.t), soonBusy), operator: newOperator(w)}
	shop.db.SetMaxOpenConns(5 * connections) // many transactions are open at once, and Confirm needs one too
	return []user{hesitant, strict, sdk, shop}
}

// late ends its transactions when the coordinators have stopped asking. The producer has no tombstone, so its
// messages are parked where an operator sees them.
type late struct {
	*plain
	operator operator
	parked   atomic.Int64
}

func (l *late) act(ctx context.Context, id string, random *rand.Rand) {
	d, at := l.draw(id, random), random.IntN(len(l.coordinators))
	l.want(d, "SendHalfMessage", l.sendHalf(ctx, at, d), codes.OK)
	l.ledger.Accepted(d.key)
	err := l.operator.sees(ctx, l.name, id, pb.State_STATE_ABANDONED)
	if listed, failed := l.operator.lists(ctx, l.name, id, pb.State_STATE_ABANDONED); err != nil || failed != nil ||
		!listed {
		l.surprised("%s: listed as abandoned: %t: %v, %v", d.key, listed, err, failed)
		return
	}
	l.parked.Add(1)
	ends := []func(context.Context, int, deed){l.submits, l.isRetried, l.rollsBack, l.isDiscarded}
	ends[d.way%len(ends)](ctx, at, d)
}

// submits late: the message comes back, and is delivered.
func (l *late) submits(ctx context.Context, at int, d deed) {
	l.ledger.Decide(d.key, Committed)
	l.want(d, "the late Submit", l.submit(ctx, at+1, d, pb.Wait_WAIT_DONE), codes.OK)
}

// isRetried: the business commits in silence, and an operator asks again.
func (l *late) isRetried(ctx context.Context, _ int, d deed) {
	l.ledger.Decide(d.key, Committed)
	l.must(d, l.operator.retry(ctx, l.name, d.id))
}

// rollsBack late: the call is refused, because a parked message belongs to the operator. The operator asks again, and
// the message is gone.
func (l *late) rollsBack(ctx context.Context, at int, d deed) {
	l.ledger.Decide(d.key, RolledBack)
	l.want(d, "the late Rollback", l.rollback(ctx, at+1, d), codes.FailedPrecondition)
	l.must(d, l.operator.retry(ctx, l.name, d.id))
	l.must(d, l.operator.sees(ctx, l.name, d.id, pb.State_STATE_ROLLED_BACK))
	l.want(d, "Submit after that", l.submit(ctx, at+2, d, pb.Wait_WAIT_UNSPECIFIED), codes.FailedPrecondition)
}

// isDiscarded by an operator; the coordinator asks no more, and the producer deletes its marker itself.
func (l *late) isDiscarded(ctx context.Context, at int, d deed) {
	l.ledger.Decide(d.key, RolledBack)
	l.must(d, l.operator.discard(ctx, l.name, d.id))
	l.must(d, l.operator.sees(ctx, l.name, d.id, pb.State_STATE_UNSPECIFIED))
	l.want(d, "Submit of what is discarded", l.submit(ctx, at+1, d, pb.Wait_WAIT_UNSPECIFIED), codes.NotFound)
	l.forgotten.Store(d.id, true)
}

func (w *witness) must(d deed, err error) {
	if err != nil {
		w.surprised("%s: %v", d.key, err)
	}
}

// tooLateToCommit plants a tombstone at the last Confirm call, and tries to end its transactions afterwards.
type tooLateToCommit struct {
	*plain
	operator operator
	refused  atomic.Int64
}

func (l *tooLateToCommit) act(ctx context.Context, id string, random *rand.Rand) {
	d, at := l.draw(id, random), random.IntN(len(l.coordinators))
	l.want(d, "SendHalfMessage", l.sendHalf(ctx, at, d), codes.OK)
	l.ledger.Accepted(d.key)
	l.must(d, l.operator.sees(ctx, l.name, id, pb.State_STATE_ROLLED_BACK))
	if l.ledger.Decide(d.key, Committed) != RolledBack {
		l.surprised("%s: it is rolled back, and its transaction commits", d.key)
	}
	l.want(d, "the late Submit", l.submit(ctx, at+1, d, pb.Wait_WAIT_UNSPECIFIED), codes.FailedPrecondition)
	l.want(d, "the late Rollback", l.rollback(ctx, at+2, d), codes.OK)
	l.refused.Add(1)
}

// lateSDK has a business that takes longer than the coordinators ask. Its Send does not notice the delay.
type lateSDK struct {
	*service
	operator operator
	parked   atomic.Int64
}

func (l *lateSDK) act(ctx context.Context, id string, random *rand.Rand) {
	d := l.draw(id, random)
	commits := d.way%3 > 0
	l.sending(d)
	m := l.message(d)
	err := l.sdk.Send(ctx, m, func(ctx context.Context) error {
		l.ledger.Accepted(d.key)
		l.must(d, l.operator.sees(ctx, l.name, id, pb.State_STATE_ABANDONED))
		l.parked.Add(1)
		if !commits {
			l.ledger.Decide(d.key, RolledBack)
			return errRefused
		}
		l.ledger.Decide(d.key, Committed)
		return nil
	})
	if commits {
		l.expect(d.key, err, nil)
		return
	}
	l.expect(d.key, err, errRefused)
	l.must(d, l.operator.retry(ctx, l.name, id))
	l.must(d, l.operator.sees(ctx, l.name, id, pb.State_STATE_ROLLED_BACK))
}

// lateShop has its markers in its transactions. Half of them hold their marker over the last Confirm call, which
// no producer can answer then; the other half begin after a tombstone has answered the last Confirm call.
type lateShop struct {
	*shop
	operator       operator
	parked, barred atomic.Int64
}

// soonBusy waits for few of the transactions of a Confirm call.
func soonBusy(c *sqlmarker.Config) { c.LockTimeout = 50 * time.Millisecond }

func (l *lateShop) act(ctx context.Context, id string, random *rand.Rand) {
	d := l.draw(id, random)
	l.sending(d)
	m := l.message(d)
	if d.way%2 == 0 {
		l.isBarred(ctx, m, d)
	} else {
		l.holdsOn(ctx, m, d)
	}
}

// isBarred: its transaction fails at the marker.
func (l *lateShop) isBarred(ctx context.Context, m producer.Message, d deed) {
	err := l.sdk.Send(ctx, m, func(ctx context.Context) error {
		l.ledger.Accepted(d.key)
		l.must(d, l.operator.sees(ctx, l.name, d.id, pb.State_STATE_ROLLED_BACK))
		return l.store.InTx(m, l.order(deed{id: d.id, key: d.key}))(ctx)
	})
	l.expect(d.key, err, producer.ErrRolledBack)
	l.barred.Add(1)
}

// holdsOn: its transaction ends when the message is parked. A commit's Submit brings the message back; after a
// rollback an operator asks again.
func (l *lateShop) holdsOn(ctx context.Context, m producer.Message, d deed) {
	fails := d.way%3 == 0
	err := l.store.Send(ctx, l.sdk, m, func(ctx context.Context, tx *sql.Tx) error {
		if err := l.order(deed{id: d.id, key: d.key})(ctx, tx); err != nil {
			return err
		}
		l.must(d, l.operator.sees(ctx, l.name, d.id, pb.State_STATE_ABANDONED))
		l.parked.Add(1)
		if fails {
			return errRefused
		}
		return nil
	})
	if !fails {
		l.expect(d.key, err, nil)
		return
	}
	l.expect(d.key, err, errRefused)
	l.must(d, l.operator.retry(ctx, l.name, d.id))
	l.must(d, l.operator.sees(ctx, l.name, d.id, pb.State_STATE_ROLLED_BACK))
}

// parkedAreCounted demands that the coordinators count as many parked messages as their producers saw.
func parkedAreCounted(t *testing.T, w *world, l *load, _ End) {
	t.Helper()
	plain, strict, sdk := userOf[*late](t, l), userOf[*tooLateToCommit](t, l), userOf[*lateSDK](t, l)
	shop := userOf[*lateShop](t, l)
	seen := int(plain.parked.Load() + sdk.parked.Load() + shop.parked.Load())
	counted := w.counted(`msghandler_moves_total{event="given_up",fate="stored"}`)
	t.Logf("%d were set aside (%d of the SDK, %d of them held their SQL marker), %d counted; %d stopped by a tombstone, "+
		"%d by a SQL marker", seen, sdk.parked.Load()+shop.parked.Load(), shop.parked.Load(), counted, strict.refused.Load(),
		shop.barred.Load())
	for _, n := range []*atomic.Int64{&plain.parked, &sdk.parked, &shop.parked, &strict.refused, &shop.barred} {
		if n.Load() == 0 {
			t.Error("a way to be late was not taken")
		}
	}
	if counted != seen {
		t.Errorf("%d were seen parked, %d are counted", seen, counted)
	}
}
