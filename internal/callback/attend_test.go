package callback_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// streams is a producer that attends, or that nobody attends as.
type streams struct {
	msghandlerv1.ProducerServiceClient
	err error
}

func (s streams) Confirm(
	_ context.Context, r *msghandlerv1.ConfirmRequest, _ ...grpc.CallOption,
) (*msghandlerv1.ConfirmResponse, error) {
	answer := &msghandlerv1.ConfirmResponse{}
	for _, id := range r.GetIds() {
		answer.Confirmations = append(answer.Confirmations,
			&msghandlerv1.Confirmation{Id: id, Verdict: msghandlerv1.Verdict_VERDICT_COMMITTED})
	}
	return answer, s.err
}

func TestAttendingProducerIsAskedByStream(t *testing.T) {
	t.Parallel()
	asked := ""
	c := client(t, callback.Config{
		Allow: []string{"nowhere:1"}, // no allow-list matters, as nothing is dialled
		Attending: func(producer string) msghandlerv1.ProducerServiceClient {
			asked = producer
			return streams{}
		},
	})
	to := halfmsg.Target{Producer: "orders", Address: halfmsg.AttendTarget("orders")}
	if resolved, err := c.Resolve("orders", to.Address); resolved != to.Address || err != nil {
		t.Errorf("resolved to %q, %v", resolved, err)
	}
	verdicts, err := c.Confirm(t.Context(), to, []string{"1", "2"}, false)
	if err != nil || verdicts["1"] != halfmsg.VerdictCommitted || len(verdicts) != 2 || asked != "orders" {
		t.Errorf("%s: %v, %v", asked, verdicts, err)
	}
	other := halfmsg.Target{Producer: "stock", Address: to.Address}
	if _, err := c.Confirm(t.Context(), other, []string{"1"}, false); !errors.Is(err, halfmsg.ErrBadTarget) {
		t.Errorf("a producer is asked over the streams of another: %v", err)
	}
}

// Nobody attending costs no attempt: no message may be the reason.
func TestNobodyAttendsIsNotReached(t *testing.T) {
	t.Parallel()
	away := status.Error(codes.Unavailable, "no one attends as producer orders")
	c := client(t, callback.Config{
		Attending: func(string) msghandlerv1.ProducerServiceClient { return streams{err: away} },
	})
	to := halfmsg.Target{Producer: "orders", Address: halfmsg.AttendTarget("orders")}
	_, err := c.Confirm(t.Context(), to, []string{"1"}, true)
	var failed *callback.CallError
	if !errors.As(err, &failed) || failed.Reached || errors.Is(err, halfmsg.ErrCallFailed) {
		t.Errorf("got %v", err)
	}
}

// Doctor has no streams.
func TestOnlyCoordinatorsAskOverStreams(t *testing.T) {
	t.Parallel()
	c := client(t, callback.Config{Timeout: time.Second})
	to := halfmsg.Target{Producer: "orders", Address: halfmsg.AttendTarget("orders")}
	if _, _, err := c.Open(to); err == nil || !strings.Contains(err.Error(), "only coordinators have its streams") {
		t.Errorf("got %v", err)
	}
}

// A name of a producer that looks like a port makes no address of a host.
func TestAttendTargetIsNoAddress(t *testing.T) {
	t.Parallel()
	c := client(t, callback.Config{Allow: []string{"*:*"}})
	for _, name := range []string{"orders", "9000", "a.b"} {
		if _, err := c.Resolve("other", halfmsg.AttendTarget(name)); !errors.Is(err, halfmsg.ErrBadTarget) {
			t.Errorf("%s: %v", name, err)
		}
		if err := callback.ParseTarget(halfmsg.AttendTarget(name)); !errors.Is(err, halfmsg.ErrBadTarget) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
