package server_test

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/test/bufconn"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// openInBubble serves in fake time, and returns a function that makes further connections.
func openInBubble(t *testing.T) (h *house, another func() *grpc.ClientConn) {
	t.Helper()
	listener := bufconn.Listen(1 << 20)
	h = openAt(t, listener, func(c *server.Config) { c.Reflection = true })
	return h, func() *grpc.ClientConn {
		return connect(
			t,
			"passthrough:///here",
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return listener.DialContext(ctx)
			}),
		)
	}
}

// begin begins a call and sends no more than its headers.
func begin(t *testing.T, conn *grpc.ClientConn, method string) grpc.ClientStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour) // in a bubble that is no time
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, method)
	must.Succeed(t, err)
	return stream
}

// An unfinished request may hold as much as the largest request. After half a minute its connection is closed, which
// ends the other calls on the connection.
func TestASlowRequestEndsItsConnection(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]func(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream{
		"nothing of it": func(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
			return begin(t, conn, msghandlerv1.MessageHandlerService_SendHalfMessages_FullMethodName)
		},
		"all but its end": func(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
			stream := begin(t, conn, msghandlerv1.MessageHandlerService_SendHalfMessage_FullMethodName)
			must.Succeed(t, stream.SendMsg(good("1")))
			return stream
		},
		"of a call that is answered with a stream": func(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
			return begin(t, conn, adminv1.AdminService_TailMessages_FullMethodName)
		},
		"about its health": func(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
			return begin(t, conn, healthv1.Health_Check_FullMethodName)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h, another := openInBubble(t)
				conn := another()
				stream := request(t, conn)
				began := time.Now()
				wantCode(t, stream.RecvMsg(&msghandlerv1.SendHalfMessageResponse{}), codes.Unavailable)
				// In a bubble time passes only while all wait.
				if took := time.Since(began); took < 30*time.Second || took > 40*time.Second {
					t.Errorf("the call was given %s", took)
				}
				if n := h.store.len(); n != 0 {
					t.Errorf("%d messages are stored, and none was sent", n)
				}
			})
		})
	}
}

// A slow answer and a conversation are no slow requests.
func TestWaitingCallsKeepTheirConnections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, another := openInBubble(t)
		conn := another()
		h.store.put("orders", "1", halfmsg.Pending)
		waiting := msghandlerv1.NewMessageHandlerServiceClient(conn)
		answered := make(chan error, 1)
		go func() {
			_, err := waiting.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: "orders", Id: "1", Wait: waitDone})
			answered <- err
		}()
		watch, err := healthv1.NewHealthClient(conn).Watch(t.Context(), &healthv1.HealthCheckRequest{})
		must.Succeed(t, err)
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		talk, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
		must.Succeed(t, err)
		ask := func() error {
			list := &reflectionv1.ServerReflectionRequest_ListServices{}
			if err := talk.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: list}); err != nil {
				return err
			}
			_, err := talk.Recv()
			return err
		}
		must.Succeed(t, ask())
		time.Sleep(time.Hour) // of the bubble
		if err := ask(); err != nil {
			t.Errorf("the conversation got %v", err)
		}
		h.moved("1", halfmsg.Done, true)
		if err := <-answered; err != nil {
			t.Errorf("the waiting call got %v", err)
		}
	})
}
