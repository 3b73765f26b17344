package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

// held is a store that keeps its calls until they are let go.
type held struct{ entered, gate chan struct{} }

// hold makes the store keep what comes from now on.
func (h *house) hold() *held {
	k := &held{entered: make(chan struct{}, 100), gate: make(chan struct{})}
	h.store.before = func(string) {
		k.entered <- struct{}{}
		<-k.gate
	}
	return k
}

func (k *held) letGo() { close(k.gate) }

// finish lets the calls go. The call in flight and the stop must both succeed.
func (k *held) finish(t *testing.T, sent, stopped <-chan error) {
	t.Helper()
	k.letGo()
	if err := <-sent; err != nil {
		t.Errorf("the call in flight got %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: %v", err)
	}
}

// underWay begins a call and returns when the store keeps it.
func (h *house) underWay(ctx context.Context, k *held, id string) (answered chan error) {
	answered = make(chan error, 1)
	go func() {
		_, err := h.producers.SendHalfMessage(ctx, good(id))
		answered <- err
	}()
	<-k.entered
	return answered
}

func TestAStopFinishesCallsInFlight(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.SetServing(true)
	watch, err := h.health.Watch(t.Context(), &healthv1.HealthCheckRequest{}) // would hold a drain up for ever
	must.Succeed(t, err)
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	store := h.hold()
	sent := h.underWay(t.Context(), store, "1")
	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop(t.Context()) }()
	for err == nil { // until the watch has ended
		_, err = watch.Recv()
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a call in flight: %v", err)
	default:
	}
	store.finish(t, sent, stopped)
	_, err = h.producers.SendHalfMessage(t.Context(), good("2"))
	wantCode(t, err, codes.Unavailable)
}

// Tools that look at the API keep their stream of questions.
func TestAStopWaitsForNoReflection(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Reflection = true })
	stream, err := reflectionv1.NewServerReflectionClient(h.conn).ServerReflectionInfo(t.Context())
	must.Succeed(t, err)
	must.Succeed(t, stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}))
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := h.Stop(ctx); err != nil {
		t.Errorf("Stop with a stream of reflection: %v", err)
	}
	_, err = stream.Recv()
	wantCode(t, err, codes.Unavailable)
}

// Requests of callers that have left are not kept, and calls in flight are counted until they are done: what the limits
// bound is all that there is.
func TestRequestsOfLeftCallersAreDropped(t *testing.T) {
	t.Parallel()
	h := open(t)
	store := h.hold()
	ctx, cancel := context.WithCancel(t.Context())
	left := h.underWay(ctx, store, "under-way") // as many batches as may be in flight
	queues := h.Queues()
	var calls sync.WaitGroup
	for i := range 50 {
		calls.Go(func() {
			_, err := h.producers.SendHalfMessage(ctx, good(fmt.Sprint("waits-", i)))
			wantCode(t, err, codes.Canceled)
		})
	}
	eventually(t, "50 wait", func() bool { return queues["create"]() == 50 })
	cancel()
	calls.Wait()
	wantCode(t, <-left, codes.Canceled)
	eventually(t, "none waits any more", func() bool { return queues["create"]() == 0 })
	eventually(t, "calls in flight are counted, and no others", func() bool { return queues["calls"]() == 1 })
	store.letGo()
	eventually(t, "nothing is counted in the end", func() bool { return queues["calls"]() == 0 })
	if n := h.store.len(); n != 1 {
		t.Errorf("%d are stored, want the message in flight", n)
	}
}

// The store is closed after the server, so a batch in the store must end first, also when its caller has left.
func TestStopWaitsForAbandonedBatches(t *testing.T) {
	t.Parallel()
	h := open(t)
	store := h.hold()
	ctx, cancel := context.WithCancel(t.Context())
	sent := h.underWay(ctx, store, "1")
	cancel()
	wantCode(t, <-sent, codes.Canceled)
	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop(t.Context()) }()
	served := <-h.served // all calls have ended
	h.served <- served   // for the end of the test
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a batch in the store: %v", err)
	default:
	}
	store.letGo()
	if err := <-stopped; err != nil || h.store.len() != 1 {
		t.Errorf("Stop: %v, %d stored", err, h.store.len())
	}
}

// dial opens a connection and says something on it. It returns when the server has taken the connection.
func (h *house) dial(t *testing.T, words string) net.Conn {
	t.Helper()
	var conns []net.Conn
	for _, words := range []string{words, "GET / HTTP/1.0\r\n\r\n"} {
		conn, err := net.Dial("tcp", h.conn.Target())
		must.Succeed(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := io.WriteString(conn, words); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	_, _ = io.ReadAll(conns[1]) // the end of HTTP/1.0 tells that the connection before was accepted
	return conns[0]
}

// A connection that never says a word, or only the first, is closed at once. gRPC alone waits for ten seconds, before
// it tells anybody else to go.
func TestStopWaitsForNoSilentConnection(t *testing.T) {
	t.Parallel()
	for name, words := range map[string]string{"silent": "", "only a preface": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			h.alive(t)
			silent := h.dial(t, words)
			store := h.hold()
			sent := h.underWay(t.Context(), store, "1")
			stopped := make(chan error, 1)
			go func() { stopped <- h.Stop(t.Context()) }()

			_ = silent.SetReadDeadline(time.Now().Add(5 * time.Second)) // half of gRPC's ten
			if _, err := io.Copy(io.Discard, silent); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("the connection is still open")
			}
			store.finish(t, sent, stopped)
		})
	}
}

// A client that does not finish its request or does not read its answer keeps its call for ever, and no handler knows
// of it. It is cut off when the others have had time to end.
func TestStopWaitsForNoIdleClient(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(stream grpc.ClientStream) error{
		"a request without end": func(grpc.ClientStream) error { return nil },
		"an answer that is not read": func(stream grpc.ClientStream) error {
			if err := stream.SendMsg(&adminv1.GetMessageRequest{Producer: "orders", Id: "large"}); err != nil {
				return err
			}
			if err := stream.CloseSend(); err != nil {
				return err
			}
			_, err := stream.Header() // the rest does not fit into what a client takes without reading
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := open(t)
			large := halfmsg.Name{Producer: "orders", ID: "large"}
			h.store.records[large] = halfmsg.Record{
				Message: halfmsg.Message{Name: large, Body: make([]byte, 1<<20)}, State: halfmsg.Pending,
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			stream, err := h.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true},
				adminv1.AdminService_GetMessage_FullMethodName)
			if err == nil {
				err = begin(stream)
			}
			must.Succeed(t, err)
			h.alive(t) // on the same connection, so what came before it has been taken in
			if err := h.Stop(ctx); err != nil {
				t.Errorf("Stop: %v", err)
			}
		})
	}
}

func TestAStopIsBounded(t *testing.T) {
	t.Parallel()
	h := open(t)
	store := h.hold()
	defer store.letGo()
	sent := h.underWay(t.Context(), store, "1")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop: %v", err)
	}
	if err := <-sent; err == nil {
		t.Error("the call that was cut off got OK")
	}
}
