package server_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

func TestRepeatedSendLearnsTrueState(t *testing.T) {
	t.Parallel()
	h := open(t)
	for _, state := range []halfmsg.State{halfmsg.Pending, halfmsg.Sendable, halfmsg.Done, halfmsg.RolledBack} {
		answer, err := h.producers.SendHalfMessage(t.Context(), good("1"))
		if err != nil || answer.GetState() != msghandlerv1.State(max(state, halfmsg.Pending)) {
			t.Fatalf("got %v, %v; want %s", answer, err, state)
		}
		next := state + 1
		h.store.mu.Lock()
		name := halfmsg.Name{Producer: "orders", ID: "1"}
		record := h.store.records[name]
		record.State = next
		h.store.records[name] = record
		h.store.mu.Unlock()
	}
	other := good("1")
	other.Message.Body = []byte("other")
	_, err := h.producers.SendHalfMessage(t.Context(), other)
	wantCode(t, err, codes.AlreadyExists)
	if info, _ := reason(err); info.GetReason() != "MESSAGE_EXISTS" {
		t.Errorf("the reason is %q", info.GetReason())
	}
}

// To its producer an acknowledged message is done, also with work left; an operator sees its true state.
func TestAcknowledgedIsDoneForProducers(t *testing.T) {
	t.Parallel()
	h := open(t)
	if _, err := h.producers.SendHalfMessage(t.Context(), good("1")); err != nil {
		t.Fatal(err)
	}
	name := halfmsg.Name{Producer: "orders", ID: "1"}
	h.store.mu.Lock()
	record := h.store.records[name]
	record.State = halfmsg.Acknowledged
	h.store.records[name] = record
	h.store.mu.Unlock()

	sent, err := h.producers.SendHalfMessage(t.Context(), good("1"))
	if err != nil || sent.GetState() != msghandlerv1.State_STATE_DONE {
		t.Errorf("sent again: %v, %v", sent, err)
	}
	submitted, err := h.producers.SubmitAll(
		t.Context(),
		&msghandlerv1.SubmitAllRequest{Producer: "orders", Ids: []string{"1"}},
	)
	if err != nil || submitted.GetOutcomes()[0].GetState() != msghandlerv1.State_STATE_DONE {
		t.Errorf("submitted: %v, %v", submitted, err)
	}
	_, err = h.producers.Rollback(t.Context(), &msghandlerv1.RollbackRequest{Producer: "orders", Id: "1"})
	wantCode(t, err, codes.FailedPrecondition)
	if info, _ := reason(err); info.GetMetadata()["state"] != "done" {
		t.Errorf("rolled back: %v", info)
	}
	got, err := h.operators.GetMessage(t.Context(), &adminv1.GetMessageRequest{Producer: "orders", Id: "1"})
	if err != nil || got.GetRecord().GetState() != msghandlerv1.State_STATE_ACKNOWLEDGED {
		t.Errorf("an operator sees %v, %v", got, err)
	}
}

func TestErrorsAreTranslatedOnce(t *testing.T) {
	t.Parallel()
	const secret = "dial tcp 10.9.8.7:6379: WRONGPASS"
	for _, tc := range []struct {
		err    error
		code   codes.Code
		reason string
		retry  bool
	}{
		{halfmsg.ErrUnavailable, codes.Unavailable, "STORE_UNAVAILABLE", true},
		{halfmsg.ErrFull, codes.ResourceExhausted, "STORE_FULL", true},
		{halfmsg.ErrOverQuota, codes.ResourceExhausted, "PRODUCER_QUOTA", true},
		{halfmsg.ErrKeyHeld, codes.ResourceExhausted, "KEY_HELD", true},
		{halfmsg.ErrUncertain, codes.Unknown, "OUTCOME_UNKNOWN", true},
		{halfmsg.ErrNotFound, codes.NotFound, "MESSAGE_NOT_FOUND", false},
		{halfmsg.ErrIllegal, codes.FailedPrecondition, "WRONG_STATE", false},
		{halfmsg.ErrCorrupt, codes.DataLoss, "RECORD_UNREADABLE", false},
		{halfmsg.ErrLeaseLost, codes.Internal, "INTERNAL", false},
		{errors.New("unknown"), codes.Internal, "INTERNAL", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			h.store.fail = fmt.Errorf("%w: %w", tc.err, errors.New(secret))
			ctx := t.Context()
			name := &adminv1.MessageName{Producer: "orders", Id: "1"}
			selection := &adminv1.MessageSelection{Names: []*adminv1.MessageName{name}}
			requests := []proto.Message{
				good("1"),
				&msghandlerv1.SubmitRequest{Producer: "orders", Id: "1"},
				&msghandlerv1.RollbackRequest{Producer: "orders", Id: "1"},
				&adminv1.GetMessageRequest{Producer: "orders", Id: "1"},
				&adminv1.ListMessagesRequest{Filter: &adminv1.MessageFilter{State: 1}},
				&adminv1.GetStatsRequest{},
			}
			if tc.retry { // then a whole batch fails as one
				requests = append(requests, &msghandlerv1.SubmitAllRequest{Producer: "orders", Ids: []string{"1", "2"}},
					&adminv1.RetryMessagesRequest{Selection: selection})
			}
			for _, request := range requests {
				call, err := request.ProtoReflect().Descriptor().Name(), h.invoke(ctx, request)
				info, retry := reason(err)
				if status.Code(err) != tc.code || info.GetReason() != tc.reason || info.GetDomain() != "msghandler" ||
					retry != tc.retry {
					t.Errorf("%s: got %v with %s, retry %t; want %v, %s, %t", call, err, info.GetReason(), retry, tc.code, tc.reason,
						tc.retry)
				}
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%s: a driver's text got out: %v", call, err)
				}
			}
		})
	}
}

func TestAWrongStateIsNamed(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "back", halfmsg.RolledBack)
	h.store.put("orders", "out", halfmsg.Sendable)
	_, submit := h.producers.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: "orders", Id: "back"})
	_, rollback := h.producers.Rollback(t.Context(), &msghandlerv1.RollbackRequest{Producer: "orders", Id: "out"})
	for err, state := range map[error]string{submit: "rolled_back", rollback: "sendable"} {
		wantCode(t, err, codes.FailedPrecondition)
		if info, _ := reason(err); info.GetMetadata()["state"] != state || !strings.Contains(err.Error(), state) {
			t.Errorf("got %v with %v, want the state %s", err, info, state)
		}
	}
	if h.store.get("orders", "out").State != halfmsg.Sendable {
		t.Error("the message was moved")
	}
	_, err := h.producers.Rollback(t.Context(), &msghandlerv1.RollbackRequest{Producer: "others", Id: "out"})
	wantCode(t, err, codes.NotFound) // another producer's message
}

func TestASubmitHandsOnTheClaim(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.store.put("orders", "1", halfmsg.Pending)
	h.store.put("orders", "2", halfmsg.Done)
	h.store.put("orders", "3", halfmsg.Abandoned)
	answer, err := h.producers.SubmitAll(t.Context(), &msghandlerv1.SubmitAllRequest{
		Producer: "orders", Ids: []string{"1", "2", "1", "3", "none", "bad id"},
	})
	must.Succeed(t, err)
	var got []string
	for _, o := range answer.GetOutcomes() {
		got = append(got, fmt.Sprint(codes.Code(o.GetCode()), " ", o.GetState()))
	}
	want := []string{
		"OK STATE_PENDING", "OK STATE_DONE", "OK STATE_PENDING", "OK STATE_PENDING",
		"NotFound STATE_UNSPECIFIED", "InvalidArgument STATE_UNSPECIFIED",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	claims := h.taken()
	if len(claims) != 2 || claims[0].ID != "1" || claims[1].ID != "3" || claims[0].Exchange != "shop" {
		t.Errorf("these were set going: %v", claims)
	}
}

func TestConcurrentCallsShareBatches(t *testing.T) {
	t.Parallel()
	var arrived atomic.Int32
	count := func(ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		arrived.Add(1)
		return next(ctx, r)
	}
	h := open(t, func(c *server.Config) { c.Interceptors = []grpc.UnaryServerInterceptor{count} })
	gate := make(chan struct{})
	h.store.before = func(string) { <-gate }
	var calls sync.WaitGroup
	for i := range 200 {
		calls.Go(func() {
			if _, err := h.producers.SendHalfMessage(t.Context(), good(fmt.Sprint(i))); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all calls have arrived", func() bool { return arrived.Load() == 200 })
	close(gate)
	calls.Wait()
	if n := len(h.store.batches); n > 100 || h.store.len() != 200 {
		t.Errorf("%d messages took %d calls to the store", h.store.len(), n)
	}
}

func TestCallsOverTheLimitsAreRefused(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]server.Limits{
		"waiting": {Waiting: 1}, "calls": server.Limits{}.WithCalls(3), "bytes": {Bytes: 150},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t, func(c *server.Config) { c.Limits = limits })
			gate := make(chan struct{})
			h.store.before = func(string) { <-gate }
			refused := make(chan error, 50)
			var calls sync.WaitGroup
			for i := range 50 {
				calls.Go(func() {
					if _, err := h.producers.SendHalfMessage(t.Context(), good(fmt.Sprint(i))); err != nil {
						refused <- err
					}
				})
			}
			err := <-refused
			wantCode(t, err, codes.ResourceExhausted)
			if info, retry := reason(err); info.GetReason() != "TOO_MANY_CALLS" || !retry {
				t.Errorf("got %v: %v, retry %t", err, info, retry)
			}
			if _, err := h.health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Errorf("health: %v", err)
			}
			close(gate)
			calls.Wait()
			h.alive(t)
		})
	}
}

func TestAPanicIsAnError(t *testing.T) {
	t.Parallel()
	h := open(t)
	var calm atomic.Bool
	h.store.before = func(string) {
		if !calm.Load() {
			panic("poison")
		}
	}
	for _, request := range []proto.Message{
		good("1"), // gathered with others
		&msghandlerv1.SubmitRequest{Producer: "orders", Id: "1"},
		&msghandlerv1.RollbackRequest{Producer: "orders", Id: "1"},
		&adminv1.GetStatsRequest{}, // in the handler
	} {
		err := h.invoke(t.Context(), request)
		wantCode(t, err, codes.Internal)
		if err != nil && strings.Contains(err.Error(), "poison") {
			t.Errorf("%T: the panic got out: %v", request, err)
		}
	}
	calm.Store(true)
	h.alive(t)
}

func TestHealthAndReflection(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Reflection = true })
	for _, service := range []string{"", "msghandler.v1.MessageHandlerService", "msghandler.admin.v1.AdminService"} {
		for _, serving := range []bool{false, true, false} {
			h.SetServing(serving)
			answer, err := h.health.Check(t.Context(), &healthv1.HealthCheckRequest{Service: service})
			if err != nil || (answer.GetStatus() == healthv1.HealthCheckResponse_SERVING) != serving {
				t.Errorf("%q: got %v, %v; want serving %t", service, answer, err, serving)
			}
		}
	}
	for reflected, house := range map[bool]*house{true: h, false: open(t)} {
		stream, err := reflectionv1.NewServerReflectionClient(house.conn).ServerReflectionInfo(t.Context())
		must.Succeed(t, err)
		_ = stream.Send(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
		})
		if _, err := stream.Recv(); (err == nil) != reflected {
			t.Errorf("reflection %t: %v", reflected, err)
		}
	}
}
