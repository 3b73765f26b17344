package server_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

const (
	waitSendable = msghandlerv1.Wait_WAIT_SENDABLE
	waitDone     = msghandlerv1.Wait_WAIT_DONE
)

// answer is what a Submit that runs beside the test came back with.
type answer struct {
	state msghandlerv1.State
	err   error
}

func submit(ctx context.Context, h *house, producer, id string, wait msghandlerv1.Wait) chan answer {
	answered := make(chan answer, 1)
	go func() {
		r, err := h.producers.Submit(ctx, &msghandlerv1.SubmitRequest{Producer: producer, Id: id, Wait: wait})
		answered <- answer{r.GetState(), err}
	}()
	return answered
}

// moved moves a message in the store, and notifies the server of its own moves.
func (h *house) moved(id string, state halfmsg.State, notified bool) {
	h.store.put("orders", id, state)
	if notified {
		h.Moved([]halfmsg.Moved{{Name: halfmsg.Name{Producer: "orders", ID: id}, State: state}})
	}
}

// blind makes looks into the store fail, so that only notifications can end a wait.
func (h *house) blind() {
	h.store.before = func(call string) {
		if call == "Get" {
			panic("a look is not allowed")
		}
	}
}

func TestAWaitEndsWithTheState(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		wait  msghandlerv1.Wait
		moves []halfmsg.State
	}{
		{waitSendable, []halfmsg.State{halfmsg.Sendable}},
		{waitSendable, []halfmsg.State{halfmsg.Pending, halfmsg.RolledBack}},
		{waitSendable, []halfmsg.State{halfmsg.Abandoned}},
		{waitSendable, []halfmsg.State{halfmsg.Done}},
		{waitDone, []halfmsg.State{halfmsg.Sendable, halfmsg.Done}},
		{waitDone, []halfmsg.State{halfmsg.Sendable, halfmsg.Acknowledged}},
		{waitDone, []halfmsg.State{halfmsg.Sendable, halfmsg.Dead}},
		{waitDone, []halfmsg.State{halfmsg.RolledBack}},
		{waitDone, []halfmsg.State{halfmsg.Abandoned}},
	} {
		for _, notified := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s %v notified %t", tc.wait, tc.moves, notified), func(t *testing.T) {
				t.Parallel()
				claimed := make(chan struct{}, 1)
				h := open(t, func(c *server.Config) {
					c.Pipeline.Confirm = confirmStage(func([]halfmsg.Claim, time.Time) { claimed <- struct{}{} })
				})
				h.store.put("orders", "1", halfmsg.Pending)
				answered := submit(t.Context(), h, "orders", "1", tc.wait)
				<-claimed
				last := len(tc.moves) - 1
				for _, state := range tc.moves[:last] {
					h.moved("1", state, notified)
				}
				h.moved("1", tc.moves[last], notified)
				want := tc.moves[last]
				if want == halfmsg.Acknowledged {
					want = halfmsg.Done // all that a producer waits for
				}
				if got := <-answered; got.err != nil || got.state != msghandlerv1.State(want) {
					t.Errorf("got %v", got)
				}
			})
		}
	}
}

func TestNoMoveIsMissedBeforeWait(t *testing.T) {
	t.Parallel()
	var h *house
	h = open(t, func(c *server.Config) {
		c.Pipeline.Confirm = confirmStage(func(claims []halfmsg.Claim, _ time.Time) {
			h.Moved([]halfmsg.Moved{{Name: claims[0].Name, State: halfmsg.Done}})
		})
	})
	h.blind()
	h.store.put("orders", "1", halfmsg.Pending)
	if got := <-submit(t.Context(), h, "orders", "1", waitDone); got.err != nil ||
		got.state != msghandlerv1.State_STATE_DONE {
		t.Errorf("got %v", got)
	}
}

func TestFreshlyClaimedMessagesAreNotPolled(t *testing.T) {
	t.Parallel()
	claimed := make(chan struct{}, 1)
	h := open(t, func(c *server.Config) {
		c.Pipeline.Confirm = confirmStage(func([]halfmsg.Claim, time.Time) { claimed <- struct{}{} })
	})
	looks := make(chan time.Time, 1000)
	h.store.before = func(call string) {
		if call == "Get" {
			looks <- time.Now()
		}
	}
	h.store.put("orders", "1", halfmsg.Pending)
	begun := time.Now()
	answered := submit(t.Context(), h, "orders", "1", waitDone)
	<-claimed
	// The first look comes: it may have been handed back, and another instance has it.
	if first := (<-looks).Sub(begun); first < time.Second {
		t.Errorf("the message was looked at after %v, as if no notification had come", first)
	}
	h.moved("1", halfmsg.Done, false)
	if got := <-answered; got.err != nil || got.state != msghandlerv1.State_STATE_DONE {
		t.Errorf("got %v", got)
	}
}

func TestWithoutWaitSubmitReturnsAtOnce(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "1", halfmsg.Pending)
	if got := <-submit(t.Context(), h, "orders", "1", 0); got.err != nil || got.state != msghandlerv1.State_STATE_PENDING {
		t.Errorf("got %v", got)
	}
	h.store.put("orders", "2", halfmsg.Done)
	if got := <-submit(t.Context(), h, "orders", "2", waitDone); got.err != nil ||
		got.state != msghandlerv1.State_STATE_DONE {
		t.Errorf("got %v", got)
	}
}

func TestTheDeadlineEndsOnlyTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in a bubble time passes only while the call waits
		h, another := openInBubble(t)
		h.producers = msghandlerv1.NewMessageHandlerServiceClient(another())
		h.store.put("orders", "1", halfmsg.Pending)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		wantCode(t, (<-submit(ctx, h, "orders", "1", waitDone)).err, codes.DeadlineExceeded)
		if claims := h.taken(); len(claims) != 1 {
			t.Errorf("the submit was not taken up: %v", claims)
		}
	})
}

// The answer comes before the deadline, and says why the message has not got there. What names servers and users is for
// operators.
func TestWaitEndsWithTheRefusal(t *testing.T) {
	t.Parallel()
	const login = "Exception (403) Reason: \"ACCESS_REFUSED - access to exchange 'a' in vhost 'b' refused for user 'c'\""
	for lastError, want := range map[string]string{
		"returned by the broker: 312 NO_ROUTE": "; last error: returned by the broker: 312 NO_ROUTE",
		"nack by the broker":                   "; last error: nack by the broker",
		login:                                  "; last error: refused by the broker",
	} {
		synctest.Test(t, func(t *testing.T) {
			h, another := openInBubble(t)
			h.producers = msghandlerv1.NewMessageHandlerServiceClient(another())
			h.store.put("orders", "1", halfmsg.Sendable)
			h.store.refuse("orders", "1", lastError)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			err := (<-submit(ctx, h, "orders", "1", waitDone)).err
			wantCode(t, err, codes.DeadlineExceeded)
			got := status.Convert(err)
			if got.Message() != "submitted; only the wait has ended"+want || len(got.Details()) != 1 ||
				strings.Contains(fmt.Sprint(got.Details()), "vhost") {
				t.Errorf("after %s: %v", lastError, got)
			}
		})
	}
}

// An outage is no refusal: its text may name addresses.
func TestWaitEndsWithoutOutages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, another := openInBubble(t)
		h.producers = msghandlerv1.NewMessageHandlerServiceClient(another())
		h.store.put("orders", "1", halfmsg.Sendable)
		h.store.release("orders", "1", "dial tcp 10.1.2.3:5672: connection refused")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := (<-submit(ctx, h, "orders", "1", waitDone)).err
		if got := status.Convert(err); got.Message() != "submitted; only the wait has ended" {
			t.Errorf("got %v", got)
		}
	})
}

func TestATrustedSubmitStoresTheVerdict(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Trusted = func(producer string) bool { return producer == "orders" } })
	h.store.put("orders", "1", halfmsg.Pending)
	h.store.put("orders", "2", halfmsg.Abandoned)
	h.store.put("other", "3", halfmsg.Pending)
	for producer, id := range map[string]string{"orders": "1", "other": "3"} {
		got := <-submit(t.Context(), h, producer, id, 0)
		want := msghandlerv1.State_STATE_SENDABLE
		if producer == "other" {
			want = msghandlerv1.State_STATE_PENDING
		}
		if got.err != nil || got.state != want {
			t.Errorf("%s/%s: got %v, want %v", producer, id, got, want)
		}
	}
	batch, err := h.producers.SubmitAll(
		t.Context(),
		&msghandlerv1.SubmitAllRequest{Producer: "orders", Ids: []string{"1", "2"}},
	)
	must.Succeed(t, err)
	for _, outcome := range batch.GetOutcomes() {
		if outcome.GetState() != msghandlerv1.State_STATE_SENDABLE {
			t.Errorf("in a batch: %v", outcome)
		}
	}
	for _, claim := range h.taken() {
		if (claim.Producer == "orders") != (claim.State == halfmsg.Sendable) {
			t.Errorf("%s is handed on as %s", claim.Name, claim.State)
		}
	}
	if n := len(h.taken()); n != 3 {
		t.Errorf("%d messages are handed on, and 3 were moved", n)
	}
}

// A store that answers late has counted the lease from when it was asked, or soon after.
func TestLeaseCountsFromBeforeCall(t *testing.T) {
	t.Parallel()
	const lease = time.Minute
	ends := make(chan time.Time, 1)
	h := open(t, func(c *server.Config) {
		c.ConfirmLease = lease
		c.Pipeline.Confirm = confirmStage(func(_ []halfmsg.Claim, until time.Time) { ends <- until })
	})
	h.store.put("orders", "1", halfmsg.Pending)
	var asked time.Time
	h.store.before = func(call string) {
		if call == "Submit" {
			asked = time.Now()
			for !time.Now().After(asked) { // or the clock may not have moved when the answer comes
				runtime.Gosched()
			}
		}
	}
	begun := time.Now()
	<-submit(t.Context(), h, "orders", "1", msghandlerv1.Wait_WAIT_UNSPECIFIED)
	if until := <-ends; until.After(asked.Add(lease)) || until.Before(begun.Add(lease)) {
		t.Errorf("the lease is said to end %v after the store was asked for %v of it", until.Sub(asked), lease)
	}
}

func TestLateSubmitIgnoresOldOutcome(t *testing.T) {
	t.Parallel()
	var h *house
	claimed := make(chan struct{}, 1)
	h = open(t, func(c *server.Config) {
		c.Pipeline.Confirm = confirmStage(func(claims []halfmsg.Claim, _ time.Time) {
			h.Moved([]halfmsg.Moved{{Name: claims[0].Name, State: halfmsg.Abandoned}}) // a late notification
			claimed <- struct{}{}
		})
	})
	h.store.put("orders", "1", halfmsg.Abandoned)
	answered := submit(t.Context(), h, "orders", "1", waitSendable)
	<-claimed
	select {
	case got := <-answered:
		t.Fatalf("the wait ended with %v", got)
	case <-time.After(20 * time.Millisecond):
	}
	h.moved("1", halfmsg.Sendable, true)
	if got := <-answered; got.err != nil || got.state != msghandlerv1.State_STATE_SENDABLE {
		t.Errorf("got %v", got)
	}
}

func TestADiscardEndsTheWait(t *testing.T) {
	t.Parallel()
	claimed := make(chan struct{}, 1)
	h := open(t, func(c *server.Config) {
		c.Pipeline.Confirm = confirmStage(func([]halfmsg.Claim, time.Time) { claimed <- struct{}{} })
	})
	h.store.put("orders", "1", halfmsg.Pending)
	answered := submit(t.Context(), h, "orders", "1", waitDone)
	<-claimed
	h.store.Discard(t.Context(), []halfmsg.Name{{Producer: "orders", ID: "1"}}, halfmsg.None)
	wantCode(t, (<-answered).err, codes.NotFound)
}

func TestAStopEndsTheWaits(t *testing.T) {
	t.Parallel()
	claimed := make(chan struct{}, 1)
	h := open(t, func(c *server.Config) {
		c.Pipeline.Confirm = confirmStage(func([]halfmsg.Claim, time.Time) { claimed <- struct{}{} })
	})
	h.store.put("orders", "1", halfmsg.Pending)
	answered := submit(t.Context(), h, "orders", "1", waitDone)
	<-claimed
	must.Succeed(t, h.Stop(t.Context()))
	got := <-answered
	wantCode(t, got.err, codes.Unavailable)
	if info, retry := reason(got.err); info.GetReason() != "STOPPING" || !retry {
		t.Errorf("got %v, retry %t", info, retry)
	}
}

func TestSubmitAllWaitsForEach(t *testing.T) {
	t.Parallel()
	claimed := make(chan struct{}, 1)
	h := open(t, func(c *server.Config) {
		c.Pipeline.Confirm = confirmStage(func([]halfmsg.Claim, time.Time) { claimed <- struct{}{} })
	})
	var ids []string
	for i := range 100 {
		ids = append(ids, fmt.Sprint(i))
		h.store.put("orders", ids[i], halfmsg.Pending)
	}
	answered := make(chan *msghandlerv1.SubmitAllResponse, 1)
	go func() {
		r, err := h.producers.SubmitAll(t.Context(), &msghandlerv1.SubmitAllRequest{
			Producer: "orders", Ids: append(ids, "0", "none"), Wait: waitDone,
		})
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	<-claimed
	for i, id := range ids {
		h.moved(id, halfmsg.Done, i%2 == 0) // every other one belongs to another instance
	}
	outcomes := (<-answered).GetOutcomes()
	for i, o := range outcomes[:101] {
		if o.GetCode() != 0 || o.GetState() != msghandlerv1.State_STATE_DONE {
			t.Errorf("%d: %v", i, o)
		}
	}
	if codes.Code(outcomes[101].GetCode()) != codes.NotFound {
		t.Errorf("the unknown message: %v", outcomes[101])
	}
}

// However long messages take, those who wait leave room for others: they have half of the places for calls, and those
// of one producer a quarter.
func TestWaitsLeaveRoomForOtherCalls(t *testing.T) {
	t.Parallel()
	const calls = 8
	claimed := make(chan struct{}, calls)
	h := open(t, func(c *server.Config) {
		c.Limits = c.Limits.WithCalls(calls)
		c.Pipeline.Confirm = confirmStage(func([]halfmsg.Claim, time.Time) { claimed <- struct{}{} })
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // what should be refused would wait for ever
	defer cancel()
	wait := func(producer, id string) chan answer {
		h.store.put(producer, id, halfmsg.Pending)
		return submit(ctx, h, producer, id, waitDone)
	}
	refused := func(producer, why string) {
		t.Helper()
		err := (<-wait(producer, "refused")).err
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("%s: got %v", producer, err)
		}
		if info, retry := reason(err); info.GetReason() != "TOO_MANY_CALLS" || !retry || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: got %v with %v, retry %t", producer, err, info, retry)
		}
	}
	first := wait("orders", "1")
	<-claimed
	wait("orders", "2")
	<-claimed
	refused("orders", "the producer has as many")
	for _, id := range []string{"1", "2"} {
		wait("stock", id)
		<-claimed
	}
	refused("payments", "too many calls wait")

	if got := <-submit(t.Context(), h, "orders", "refused", 0); got.err != nil {
		t.Errorf("without a wait: %v", got.err)
	}
	<-claimed
	h.alive(t)
	h.moved("1", halfmsg.Done, true)
	if got := <-first; got.err != nil {
		t.Errorf("the first got %v", got.err)
	}
	wait("payments", "1")
	<-claimed
	if n := len(claimed); n != 0 {
		t.Errorf("%d of the refused messages were submitted anyway", n)
	}
}
