package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/attend"
	"github.com/msghandler/msghandler/internal/server"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

type attending = grpc.BidiStreamingClient[msghandlerv1.AttendRequest, msghandlerv1.AttendResponse]

// hubOf has a server take streams, few of them.
func hubOf(streams, perProducer int) (*attend.Hub, func(*server.Config)) {
	hub := attend.New(attend.Config{Instance: "here", Streams: streams, PerProducer: perProducer})
	return hub, func(c *server.Config) { c.Attendance = hub }
}

func helloOf(producer string) *msghandlerv1.AttendRequest {
	return &msghandlerv1.AttendRequest{Kind: &msghandlerv1.AttendRequest_Hello{
		Hello: &msghandlerv1.AttendHello{Producer: producer},
	}}
}

var goAway = &msghandlerv1.AttendRequest{Kind: &msghandlerv1.AttendRequest_GoAway{GoAway: &msghandlerv1.GoAway{}}}

// begin opens a stream with a first message, and returns the first answer.
func (h *house) begin(
	t *testing.T, first *msghandlerv1.AttendRequest,
) (attending, *msghandlerv1.AttendResponse, error) {
	t.Helper()
	stream, err := h.producers.Attend(t.Context())
	must.Succeed(t, err)
	_ = stream.Send(first) // Recv has the error
	r, err := stream.Recv()
	return stream, r, err
}

// attend opens a stream that is welcome.
func (h *house) attend(t *testing.T, producer string) attending {
	t.Helper()
	stream, r, err := h.begin(t, helloOf(producer))
	if err != nil || r.GetWelcome().GetInstance() != "here" {
		t.Fatalf("instead of a welcome: %v, %v", r, err)
	}
	return stream
}

func TestAHelloIsChecked(t *testing.T) {
	t.Parallel()
	_, withHub := hubOf(10, 10)
	h := open(t, withHub)
	hello := func(edit func(*msghandlerv1.AttendHello)) *msghandlerv1.AttendRequest {
		r := helloOf("orders")
		edit(r.GetHello())
		return r
	}
	for field, first := range map[string]*msghandlerv1.AttendRequest{
		"hello":          goAway,
		"hello.producer": hello(func(h *msghandlerv1.AttendHello) { h.Producer = "a b" }),
		"hello.parallel": hello(func(h *msghandlerv1.AttendHello) { h.Parallel = 17 }),
		"hello.instance": hello(func(h *msghandlerv1.AttendHello) { h.Instance = strings.Repeat("x", 129) }),
	} {
		_, r, err := h.begin(t, first)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), field+" ") {
			t.Errorf("%s: %v, %v", field, r, err)
		}
	}
	_, _, err := h.begin(t, hello(func(h *msghandlerv1.AttendHello) { h.Instance = strings.Repeat("x", 5000) }))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "hello has ") {
		t.Errorf("a large hello: %v", err)
	}
	stream := h.attend(t, "orders")
	must.Succeed(t, stream.Send(helloOf("orders")))
	if _, err := stream.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a second hello: %v", err)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	hub, withHub := hubOf(3, 2)
	h := open(t, withHub)
	first := h.attend(t, "orders")
	h.attend(t, "orders")
	full := func(producer string) {
		t.Helper()
		_, _, err := h.begin(t, helloOf(producer))
		wantCode(t, err, codes.ResourceExhausted)
		if info, retry := reason(err); info.GetReason() != "TOO_MANY_STREAMS" || !retry {
			t.Errorf("%v", err)
		}
	}
	full("orders")
	h.attend(t, "stock")
	full("bills")
	if n := h.Queues()["calls"](); n != 0 {
		t.Errorf("streams count as %d calls", n)
	}
	_ = first.Send(goAway) // Recv has the error
	if _, err := first.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("a stream whose client leaves ends with %v", err)
	}
	eventually(t, "the stream has left", func() bool { return hub.Streams() == 2 })
	h.attend(t, "orders")
}

// ask asks over the streams of a server.
func ask(hub *attend.Hub, ids ...string) <-chan error {
	asked := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		r, err := hub.Client("orders").Confirm(ctx, &msghandlerv1.ConfirmRequest{Producer: "orders", Ids: ids})
		if err == nil && len(r.GetConfirmations()) == 0 {
			err = errors.New("an empty answer")
		}
		asked <- err
	}()
	return asked
}

// answerWith answers the next question.
func answerWith(t *testing.T, stream attending, ids int, length int) {
	t.Helper()
	r, err := stream.Recv()
	if err != nil || r.GetQuestion() == nil {
		t.Fatalf("instead of a question: %v, %v", r, err)
	}
	confirm := &msghandlerv1.ConfirmResponse{}
	for i := range ids {
		confirm.Confirmations = append(confirm.Confirmations, &msghandlerv1.Confirmation{
			Id: fmt.Sprintf("%0*d", length, i), Verdict: msghandlerv1.Verdict_VERDICT_COMMITTED,
		})
	}
	answer := &msghandlerv1.AttendAnswer{
		Id: r.GetQuestion().GetId(), Answer: &msghandlerv1.AttendAnswer_Confirm{Confirm: confirm},
	}
	// Who asks has the error.
	_ = stream.Send(&msghandlerv1.AttendRequest{Kind: &msghandlerv1.AttendRequest_Answer{Answer: answer}})
}

// The guard knew of no further messages of this size before.
func TestAnswersTakeFromTheBudget(t *testing.T) {
	t.Parallel()
	hub, withHub := hubOf(10, 10)
	h := open(t, withHub, func(c *server.Config) { c.Limits = server.Limits{Bytes: 4 << 20}.WithCalls(20) })
	stream := h.attend(t, "orders")
	for range 70 { // 5 MB in all: each answer gives its bytes back
		asked := ask(hub, "1")
		answerWith(t, stream, 500, 128)
		must.Succeed(t, <-asked)
	}
	asked := ask(hub, "1")
	answerWith(t, stream, 2000, 128) // more than an answer may have
	if err := <-asked; status.Code(err) != codes.Unavailable {
		t.Errorf("an answer over the limit: %v", err)
	}
	eventually(t, "the stream is cut", func() bool { return hub.Streams() == 0 })
	again := msghandlerv1.NewMessageHandlerServiceClient(connect(t, h.conn.Target())) // the whole connection was cut
	if _, err := again.SendHalfMessage(t.Context(), good("1")); err != nil {
		t.Error(err)
	}
}

func TestAStopWaitsForOpenQuestions(t *testing.T) {
	t.Parallel()
	hub, withHub := hubOf(10, 10)
	h := open(t, withHub)
	stream, idle := h.attend(t, "orders"), h.attend(t, "stock")
	asked := ask(hub, "1")
	eventually(t, "the question is open", func() bool { return len(asked) == 0 && hub.Open() == 1 })
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		stopped <- h.Stop(ctx)
	}()
	if r, err := idle.Recv(); err != nil || r.GetGoAway() == nil {
		t.Errorf("instead of a go_away: %v, %v", r, err)
	}
	if _, err := idle.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("an idle stream ends with %v", err)
	}
	answerWith(t, stream, 1, 1)
	if r, err := stream.Recv(); err != nil || r.GetGoAway() == nil {
		t.Errorf("instead of a go_away: %v, %v", r, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
	if err := errors.Join(<-asked, <-stopped); err != nil {
		t.Error(err)
	}
}

// A client that neither reads nor answers delays no stop.
func TestStopWaitsForNoSilentStream(t *testing.T) {
	t.Parallel()
	_, withHub := hubOf(10, 10)
	h := open(t, withHub)
	h.attend(t, "orders")
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := h.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func TestOldStreamIsAskedToMove(t *testing.T) {
	t.Parallel()
	_, withHub := hubOf(10, 10)
	h := open(t, withHub, func(c *server.Config) { c.ConnectionAge = 50 * time.Millisecond })
	stream := h.attend(t, "orders")
	if r, err := stream.Recv(); err != nil || r.GetGoAway() == nil {
		t.Errorf("instead of a go_away: %v, %v", r, err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

func TestAttendNeedsGRPC(t *testing.T) {
	t.Parallel()
	h := open(t)
	r := h.postJSON(t, "/msghandler.v1.MessageHandlerService/Attend", `{"hello":{"producer":"orders"}}`)
	if r.status != 501 || r.field("reason") != "NEEDS_GRPC" {
		t.Errorf("got %v", r)
	}
}

func TestAttendingProducersMessageNeedsNoTarget(t *testing.T) {
	t.Parallel()
	_, withHub := hubOf(10, 10)
	h := open(t, withHub)
	message := good("1")
	message.CallbackTarget = ""
	_, err := h.producers.SendHalfMessage(t.Context(), message)
	wantCode(t, err, codes.Unavailable)
	if info, retry := reason(err); info.GetReason() != "NOT_ATTENDED" || !retry {
		t.Errorf("got %v", err)
	}
	if !strings.Contains(err.Error(), "none given, and no one attends as producer orders") {
		t.Errorf("got %v", err)
	}
	message.Message.Id = "" // which no producer that attends makes right
	_, err = h.producers.SendHalfMessage(t.Context(), message)
	wantCode(t, err, codes.InvalidArgument)
	message.Message.Id = "1"
	h.attend(t, "orders")
	if _, err := h.producers.SendHalfMessage(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	if target := h.store.get("orders", "1").CallbackTarget; target != "attend:///orders" {
		t.Errorf("the target is stored as %q", target)
	}
	message.Producer, message.Message.Id = "configured", "2"
	if _, err := h.producers.SendHalfMessage(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	if target := h.store.get("configured", "2").CallbackTarget; target != "" {
		t.Errorf("the configured target is stored as %q", target)
	}
}
