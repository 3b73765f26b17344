package cli_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// stricken is a coordinator whose Redis can be made unavailable.
type stricken struct {
	adminv1.UnimplementedAdminServiceServer
	addr string
	away atomic.Bool
}

func startStricken(t *testing.T) *stricken {
	t.Helper()
	s := &stricken{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	s.addr = listener.Addr().String()
	server := grpc.NewServer()
	adminv1.RegisterAdminServiceServer(server, s)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return s
}

func (s *stricken) err() error {
	if !s.away.Load() {
		return nil
	}
	st, _ := status.New(codes.Unavailable, "the store is out of reach; nothing was done").
		WithDetails(&errdetails.ErrorInfo{Reason: "STORE_UNAVAILABLE"})
	return st.Err()
}

func (s *stricken) GetStats(context.Context, *adminv1.GetStatsRequest) (*adminv1.GetStatsResponse, error) {
	pending := &adminv1.StateStats{State: msghandlerv1.State_STATE_PENDING, Count: 1}
	return &adminv1.GetStatsResponse{States: []*adminv1.StateStats{pending}}, s.err()
}

func (s *stricken) GroupMessages(
	context.Context, *adminv1.GroupMessagesRequest,
) (*adminv1.GroupMessagesResponse, error) {
	return &adminv1.GroupMessagesResponse{}, s.err()
}

// Who watches wants to see an outage end.
func TestWatchContinuesAfterOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		command []string
		well    string
	}{
		{[]string{"stats", "--watch"}, "pending   1"},
		{[]string{"top"}, "of 0 coordinators"},
	} {
		t.Run(c.command[0], func(t *testing.T) {
			t.Parallel()
			s := startStricken(t)
			out, stop := watch(t, append(c.command, "--every=100ms", "--server="+s.addr)...)
			servers.Eventually(t, 20*time.Second, "top looks", func() bool { return strings.Contains(out.String(), c.well) })
			s.away.Store(true)
			const why = "the store is out of reach; nothing was done (Unavailable); msghandler doctor finds the cause"
			servers.Eventually(t, 20*time.Second, "top tells why the list is empty", func() bool {
				return strings.Count(out.String(), why) > 1
			})
			s.away.Store(false)
			servers.Eventually(t, 20*time.Second, "top goes on", func() bool {
				return strings.LastIndex(out.String(), c.well) > strings.LastIndex(out.String(), why)
			})
			if status := stop(); status != 0 {
				t.Errorf("the command ended with %d:\n%s", status, out)
			}
		})
	}
}

// One that sees nothing at first was pointed to the wrong place, as a rule.
func TestWatchEndsAfterFirstFailure(t *testing.T) {
	t.Parallel()
	s := startStricken(t)
	s.away.Store(true)
	run(nil, "stats", "--watch", "--server="+s.addr).want(t, 1, "", "the store is out of reach")
	run(nil, "top", "--server="+s.addr).want(t, 1, "", "the store is out of reach")
}
