package server_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// tail listens, and returns when the server does.
func (h *house) tail(
	t *testing.T, ctx context.Context, r *msghandlerv1.TailMessagesRequest,
) grpc.ServerStreamingClient[msghandlerv1.TailMessagesResponse] {
	t.Helper()
	stream, err := h.operators.TailMessages(ctx, r)
	if err == nil {
		_, err = stream.Header()
	}
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// hear reads until n moves have come, and says what was missed meanwhile.
func hear(t *testing.T, stream grpc.ServerStreamingClient[msghandlerv1.TailMessagesResponse], n int) (told []string, missed int64) {
	t.Helper()
	for len(told) < n {
		news, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range news.GetMoves() {
			told = append(told, fmt.Sprintf("%s/%s %s", m.GetProducer(), m.GetId(), halfmsg.State(m.GetState())))
			if time.Since(m.GetTime().AsTime()) > time.Minute {
				t.Errorf("%v happened long ago", m)
			}
		}
		missed += news.GetMissed()
	}
	return told, missed
}

func TestATailTellsEachMove(t *testing.T) {
	t.Parallel()
	h := open(t)
	all := h.tail(t, t.Context(), &msghandlerv1.TailMessagesRequest{})
	some := h.tail(t, t.Context(), &msghandlerv1.TailMessagesRequest{
		Producer: "stock", States: []msghandlerv1.State{msghandlerv1.State_STATE_DONE, msghandlerv1.State_STATE_DEAD},
	})
	if _, err := h.producers.SendHalfMessage(t.Context(), good("1")); err != nil {
		t.Fatal(err)
	}
	name := halfmsg.Name{Producer: "orders", ID: "1"}
	stock := halfmsg.Name{Producer: "stock", ID: "2"}
	h.Moved([]halfmsg.Moved{{Name: name, State: halfmsg.Done}, {Name: stock, State: halfmsg.Sendable}, {Name: stock, State: halfmsg.Dead}})
	h.store.put("stock", "2", halfmsg.Dead)
	if _, err := h.operators.RetryMessages(t.Context(), &msghandlerv1.RetryMessagesRequest{
		Names: []*msghandlerv1.MessageName{{Producer: "stock", Id: "2"}, {Producer: "stock", Id: "none"}},
	}); err != nil {
		t.Fatal(err)
	}
	told, missed := hear(t, all, 5)
	want := "[orders/1 pending orders/1 done stock/2 sendable stock/2 dead stock/2 sendable]"
	if fmt.Sprint(told) != want || missed != 0 {
		t.Errorf("told %v, want %v, %d missed", told, want, missed)
	}
	if told, _ := hear(t, some, 1); fmt.Sprint(told) != "[stock/2 dead]" {
		t.Errorf("with a filter it is told %v", told)
	}
}

func TestATailThatIsSlowHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	h := open(t)
	stream := h.tail(t, t.Context(), &msghandlerv1.TailMessagesRequest{})
	moves := make([]halfmsg.Moved, 100)
	for i := range moves {
		moves[i] = halfmsg.Moved{Name: halfmsg.Name{Producer: "orders", ID: fmt.Sprint(i)}, State: halfmsg.Done}
	}
	const rounds = 2000 // far more than the windows of a connection hold
	for range rounds {
		h.Moved(moves)
	}
	told, missed := 0, int64(0)
	for int64(told)+missed < rounds*int64(len(moves)) {
		some, left := hear(t, stream, 1)
		told, missed = told+len(some), missed+left
	}
	if missed == 0 {
		t.Errorf("all %d moves were kept for one that does not read", told)
	}
}

func TestTailsAreBoundedAndEndWithTheServer(t *testing.T) {
	t.Parallel()
	h := open(t)
	refused := func(r *msghandlerv1.TailMessagesRequest) error {
		stream, err := h.operators.TailMessages(t.Context(), r)
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	ctx, leave := context.WithCancel(t.Context())
	first := h.tail(t, ctx, &msghandlerv1.TailMessagesRequest{})
	var last grpc.ServerStreamingClient[msghandlerv1.TailMessagesResponse]
	for range 15 {
		last = h.tail(t, t.Context(), &msghandlerv1.TailMessagesRequest{})
	}
	wantCode(t, refused(&msghandlerv1.TailMessagesRequest{}), codes.ResourceExhausted)
	wantCode(t, refused(&msghandlerv1.TailMessagesRequest{Producer: "a b"}), codes.InvalidArgument)
	wantCode(t, refused(&msghandlerv1.TailMessagesRequest{States: []msghandlerv1.State{99}}), codes.InvalidArgument)
	leave()
	if _, err := first.Recv(); err == nil {
		t.Error("it is told something after it has left")
	}
	stopped, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := h.Stop(stopped); err != nil {
		t.Fatal(err)
	}
	_, err := last.Recv()
	wantCode(t, err, codes.Unavailable)
}
