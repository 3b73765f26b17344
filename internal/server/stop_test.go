package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/msghandler/msghandler/internal/server"
)

func TestAStopFinishesWhatIsInHand(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.SetServing(true)
	watch, err := h.health.Watch(t.Context(), &healthv1.HealthCheckRequest{}) // would hold a drain up for ever
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watch.Recv(); err != nil {
		t.Fatal(err)
	}
	entered, gate := make(chan struct{}), make(chan struct{})
	h.store.before = func(string) {
		close(entered)
		<-gate
	}
	sent := make(chan error, 1)
	go func() {
		_, err := h.producers.SendHalfMessage(t.Context(), good("1"))
		sent <- err
	}()
	<-entered
	stopped := make(chan error, 1)
	go func() { stopped <- h.Stop(t.Context()) }()
	for err == nil { // until the watch has ended
		_, err = watch.Recv()
	}
	select {
	case err := <-stopped:
		t.Fatalf("stopped with a call under way: %v", err)
	default:
	}
	close(gate)
	if err := <-sent; err != nil {
		t.Errorf("the call under way got %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("Stop: %v", err)
	}
	_, err = h.producers.SendHalfMessage(t.Context(), good("2"))
	wantCode(t, err, codes.Unavailable)
}

// Tools that look at the API keep their stream of questions.
func TestAStopWaitsForNoReflection(t *testing.T) {
	t.Parallel()
	h := open(t, func(c *server.Config) { c.Reflection = true })
	stream, err := reflectionv1.NewServerReflectionClient(h.conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	}); err != nil {
		t.Fatal(err)
	}
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

// Requests of callers that have left are not kept, and those under way are counted until they are done: what the limits
// bound is all that there is.
func TestWhatCallersLeaveBehindIsNotKept(t *testing.T) {
	t.Parallel()
	h := open(t)
	entered, gate := make(chan struct{}, 2), make(chan struct{})
	h.store.before = func(string) {
		entered <- struct{}{}
		<-gate
	}
	ctx, cancel := context.WithCancel(t.Context())
	var calls sync.WaitGroup
	send := func(id string) {
		calls.Go(func() {
			_, err := h.producers.SendHalfMessage(ctx, good(id))
			wantCode(t, err, codes.Canceled)
		})
	}
	for i := range 2 { // as many batches as may be under way
		send(fmt.Sprint("under-way-", i))
		<-entered
	}
	queues := h.Queues()
	for i := range 50 {
		send(fmt.Sprint("waits-", i))
	}
	eventually(t, "50 wait", func() bool { return queues["create"]() == 50 })
	cancel()
	calls.Wait()
	eventually(t, "none waits any more", func() bool { return queues["create"]() == 0 })
	eventually(t, "those under way are counted, and no others", func() bool { return queues["calls"]() == 2 })
	h.store.before = nil
	close(gate)
	eventually(t, "nothing is counted in the end", func() bool { return queues["calls"]() == 0 })
	if n := h.store.len(); n != 2 {
		t.Errorf("%d are stored, want the two that were under way", n)
	}
}

// A connection that never says a word is in nobody's way.
func TestAStopWaitsForNoSilentConnection(t *testing.T) {
	t.Parallel()
	h := open(t)
	h.alive(t)
	silent, err := net.Dial("tcp", h.conn.Target())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	later, err := net.Dial("tcp", h.conn.Target()) // whose end tells that the one before it was accepted
	if err != nil {
		t.Fatal(err)
	}
	_, _ = later.Write([]byte("no preface of HTTP/2, whatever comes"))
	_, _ = io.ReadAll(later)
	_ = later.Close()

	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		stopped <- h.Stop(ctx)
	}()
	select {
	case err := <-stopped:
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Stop: %v", err)
		}
	case <-time.After(5 * time.Second): // the connection itself is given twice as long to speak
		t.Error("a stop waits for a connection that says nothing")
	}
}

func TestAStopIsBounded(t *testing.T) {
	t.Parallel()
	h := open(t)
	entered, gate := make(chan struct{}), make(chan struct{})
	defer close(gate)
	h.store.before = func(string) {
		close(entered)
		<-gate
	}
	sent := make(chan error, 1)
	go func() {
		_, err := h.producers.SendHalfMessage(t.Context(), good("1"))
		sent <- err
	}()
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := h.Stop(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Stop: %v", err)
	}
	if err := <-sent; err == nil {
		t.Error("the call that was cut off got OK")
	}
}
