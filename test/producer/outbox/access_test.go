package outbox_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// A credential that has expired, a rule that was taken away and a proxy that routes elsewhere are the relay's own
// trouble: the messages wait, with all their attempts and claims.
func TestRefusedAccessUsesNoAttempt(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refusal atomic.Pointer[status.Status]
	server := grpc.NewServer(grpc.UnaryInterceptor(
		func(context.Context, any, *grpc.UnaryServerInfo, grpc.UnaryHandler) (any, error) {
			return nil, refusal.Load().Err()
		}))
	pb.RegisterMessageHandlerServiceServer(server, &pb.UnimplementedMessageHandlerServiceServer{})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	p := connected(t, listener.Addr().String())
	for _, row := range []struct {
		code   codes.Code
		reason string
		want   outbox.Fate
	}{
		{codes.Unauthenticated, "UNAUTHENTICATED", outbox.Unreached},
		{codes.Unauthenticated, "", outbox.Unreached},
		{codes.PermissionDenied, "CALLER_FORBIDDEN", outbox.Unreached},
		{codes.PermissionDenied, "CALLBACK_FORBIDDEN", outbox.Unreached},
		{codes.PermissionDenied, "", outbox.Unreached},
		{codes.Unimplemented, "", outbox.Unreached},
		{codes.PermissionDenied, "POLICY_FORBIDDEN", outbox.Refused},
		{codes.InvalidArgument, "INVALID_FIELD", outbox.Refused},
	} {
		refused := status.New(row.code, "refused")
		if row.reason != "" {
			if refused, err = refused.WithDetails(&errdetails.ErrorInfo{Reason: row.reason}); err != nil {
				t.Fatal(err)
			}
		}
		refusal.Store(refused)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		r := outbox.ToCoordinator(p).Send(ctx, []sqlmarker.Queued{{Message: message("1")}})[0]
		cancel()
		if r.Fate != row.want || r.Err == nil || r.Unsent != (row.want == outbox.Unreached) {
			t.Errorf("%v %s: %+v", row.code, row.reason, r)
		}
	}
}
