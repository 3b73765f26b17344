package server_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// tail listens, and returns when the server does.
func (h *house) tail(
	t *testing.T, ctx context.Context, r *adminv1.TailMessagesRequest,
) grpc.ServerStreamingClient[adminv1.TailMessagesResponse] {
	t.Helper()
	stream, err := h.operators.TailMessages(ctx, r)
	if err == nil {
		_, err = stream.Header()
	}
	must.Succeed(t, err)
	return stream
}

// receive reads until n moves have come, and returns them with the number of missed moves.
func receive(
	t *testing.T,
	stream grpc.ServerStreamingClient[adminv1.TailMessagesResponse],
	n int,
) (got []string, missed int64) {
	t.Helper()
	for len(got) < n {
		news, err := stream.Recv()
		must.Succeed(t, err)
		for _, m := range news.GetMoves() {
			got = append(got, fmt.Sprintf("%s/%s %s", m.GetProducer(), m.GetId(), halfmsg.State(m.GetState())))
			if time.Since(m.GetTime().AsTime()) > time.Minute {
				t.Errorf("%v happened long ago", m)
			}
		}
		missed += news.GetMissedMoves()
	}
	return got, missed
}

func TestATailSendsEachMove(t *testing.T) {
	t.Parallel()
	h := open(t)
	all := h.tail(t, t.Context(), &adminv1.TailMessagesRequest{})
	some := h.tail(t, t.Context(), &adminv1.TailMessagesRequest{
		Producer: "stock", States: []msghandlerv1.State{msghandlerv1.State_STATE_DONE, msghandlerv1.State_STATE_DEAD},
	})
	if _, err := h.producers.SendHalfMessage(t.Context(), good("1")); err != nil {
		t.Fatal(err)
	}
	name := halfmsg.Name{Producer: "orders", ID: "1"}
	stock := halfmsg.Name{Producer: "stock", ID: "2"}
	h.Moved([]halfmsg.Moved{
		{Name: name, State: halfmsg.Done},
		{Name: stock, State: halfmsg.Sendable},
		{Name: stock, State: halfmsg.Dead},
	})
	h.store.put("stock", "2", halfmsg.Dead)
	if _, err := h.operators.RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
		Selection: &adminv1.MessageSelection{Names: []*adminv1.MessageName{
			{Producer: "stock", Id: "2"},
			{Producer: "stock", Id: "none"},
		}},
	}); err != nil {
		t.Fatal(err)
	}
	got, missed := receive(t, all, 5)
	want := "[orders/1 pending orders/1 done stock/2 sendable stock/2 dead stock/2 sendable]"
	if fmt.Sprint(got) != want || missed != 0 {
		t.Errorf("got %v, want %v, %d missed", got, want, missed)
	}
	if got, _ := receive(t, some, 1); fmt.Sprint(got) != "[stock/2 dead]" {
		t.Errorf("with a filter the tail got %v", got)
	}
}

func TestASlowTailDelaysNoMove(t *testing.T) {
	t.Parallel()
	h := open(t)
	stream := h.tail(t, t.Context(), &adminv1.TailMessagesRequest{})
	moves := make([]halfmsg.Moved, 100)
	for i := range moves {
		moves[i] = halfmsg.Moved{Name: halfmsg.Name{Producer: "orders", ID: fmt.Sprint(i)}, State: halfmsg.Done}
	}
	const rounds = 2000 // far more than the windows of a connection hold
	for range rounds {
		h.Moved(moves)
	}
	got, missed := 0, int64(0)
	for int64(got)+missed < rounds*int64(len(moves)) {
		some, left := receive(t, stream, 1)
		got, missed = got+len(some), missed+left
	}
	if missed == 0 {
		t.Errorf("all %d moves were kept for a client that does not read", got)
	}
}

// refusedTail is the first answer to a call of TailMessages.
func (h *house) refusedTail(t *testing.T, r *adminv1.TailMessagesRequest) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := h.operators.TailMessages(ctx, r)
	if err == nil {
		_, err = stream.Recv()
	}
	return err
}

// What cannot be read, or is too much, is answered on a stream as on any other call.
func TestATailChecksItsRequest(t *testing.T) {
	t.Parallel()
	h := open(t)
	unread := &adminv1.TailMessagesRequest{}
	unread.ProtoReflect().SetUnknown(protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "\xff"))
	for field, r := range map[string]*adminv1.TailMessagesRequest{
		"producer":  unread,
		"states":    {States: make([]msghandlerv1.State, 1001)},
		"states[0]": {States: []msghandlerv1.State{99}},
	} {
		err := h.refusedTail(t, r)
		wantCode(t, err, codes.InvalidArgument)
		if got := fields(err); !slices.Equal(got, []string{field}) {
			t.Errorf("the fields are %q, want %s: %v", got, field, err)
		}
	}
}

func TestTailsAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	h := open(t)
	ctx, leave := context.WithCancel(t.Context())
	first := h.tail(t, ctx, &adminv1.TailMessagesRequest{})
	var last grpc.ServerStreamingClient[adminv1.TailMessagesResponse]
	for range 15 {
		last = h.tail(t, t.Context(), &adminv1.TailMessagesRequest{})
	}
	wantCode(t, h.refusedTail(t, &adminv1.TailMessagesRequest{}), codes.ResourceExhausted)
	wantCode(t, h.refusedTail(t, &adminv1.TailMessagesRequest{Producer: "a b"}), codes.InvalidArgument)
	wantCode(t, h.refusedTail(t, &adminv1.TailMessagesRequest{States: []msghandlerv1.State{99}}),
		codes.InvalidArgument)
	leave()
	if _, err := first.Recv(); err == nil {
		t.Error("the client gets moves after it has left")
	}
	stopped, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	must.Succeed(t, h.Stop(stopped))
	_, err := last.Recv()
	wantCode(t, err, codes.Unavailable)
}
