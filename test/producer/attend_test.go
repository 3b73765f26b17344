// Package producer_test runs producers that attend with coordinators of their own.
package producer_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// coordinator runs a coordinator until the test ends. Nothing may be dialled.
func coordinator(t *testing.T, redis string, change ...func(*config.Config, *app.Bounds)) *app.App {
	t.Helper()
	c := config.Default()
	c.GRPC.Addr, c.HTTP.Addr = "127.0.0.1:0", "127.0.0.1:0"
	c.Redis.URL, c.AMQP.URLs = redis, []string{embeddedtest.Broker(t)}
	c.Redis.AllowUnsafe = true
	c.Confirm.Schedule, c.Confirm.After = "@every 100ms", 500*time.Millisecond
	c.Shutdown.Grace = 5 * time.Second
	log := &servers.Log{}
	deps := app.Deps{Logger: slog.New(slog.NewTextHandler(log, nil))}
	for _, f := range change {
		f(&c, &deps.Bounds)
	}
	a, err := app.New(t.Context(), c, deps)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := errors.Join(a.Stop(context.Background()), <-ended); err != nil {
			t.Errorf("the coordinator: %v", err)
		}
		if t.Failed() {
			t.Log(log)
		}
	})
	return a
}

// attending is a producer without a port.
func attending(t *testing.T, markers marker.Store, log *servers.Log, coordinators ...string) *producer.Producer {
	t.Helper()
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: strings.Join(coordinators, ","), Markers: markers,
		Logger: slog.New(slog.NewTextHandler(log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := p.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if t.Failed() {
			t.Log(log)
		}
	})
	return p
}

func send(t *testing.T, p *producer.Producer, id string) error {
	t.Helper()
	return p.Send(t.Context(), producer.Message{ID: id, RoutingKey: "nowhere", Body: []byte(id)},
		func(context.Context) error { return nil })
}

// awaitSendable waits for the verdict on a message. A Submit of the SDK would leave another marker.
func awaitSendable(t *testing.T, a *app.App, id string) {
	t.Helper()
	client := pb.NewMessageHandlerServiceClient(dial(t, a.GRPCAddr()))
	servers.Eventually(t, 30*time.Second, id+" is SENDABLE or more", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r, err := client.Submit(ctx, &pb.SubmitRequest{Producer: "orders", Id: id, Wait: pb.Wait_WAIT_SENDABLE})
		return err == nil && (r.GetState() == pb.State_STATE_SENDABLE || r.GetState() == pb.State_STATE_DEAD)
	})
}

func dial(t *testing.T, address string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func TestProducerWithoutPortIsAsked(t *testing.T) {
	t.Parallel()
	a := coordinator(t, embeddedtest.Redis(t))
	markers := memory.New()
	p := attending(t, markers, &servers.Log{}, a.GRPCAddr())
	if err := send(t, p, "1"); err != nil {
		t.Fatal(err)
	}
	awaitSendable(t, a, "1")
	servers.Eventually(t, 10*time.Second, "the marker is deleted", func() bool {
		found, err := markers.Lookup(t.Context(), []string{"1"}, false)
		return err == nil && found["1"] != marker.Committed
	})
}

// Sends go to both coordinators in turn, and so do their questions.
func TestSeveralReplicasAttendAtSeveralCoordinators(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t).URL()
	one, two := coordinator(t, redis), coordinator(t, redis)
	markers := memory.New()
	p := attending(t, markers, &servers.Log{}, one.GRPCAddr(), two.GRPCAddr())
	other := attending(t, markers, &servers.Log{}, two.GRPCAddr())
	for i := range 20 {
		if err := send(t, p, fmt.Sprint("a", i)); err != nil {
			t.Fatal(err)
		}
		if err := send(t, other, fmt.Sprint("b", i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		awaitSendable(t, one, fmt.Sprint("a", i))
		awaitSendable(t, two, fmt.Sprint("b", i))
	}
	// The stream at the first coordinator is that of p. A drain hands it over.
	if err := one.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := send(t, p, "after"); err != nil {
		t.Fatal(err)
	}
	awaitSendable(t, two, "after")
}

func TestSendWaitsForTheFirstStream(t *testing.T) {
	t.Parallel()
	proxy := wire.TCP(t, "127.0.0.1:1")
	proxy.Cut()
	p := attending(t, memory.New(), &servers.Log{}, proxy.Addr)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	ran := false
	err := p.Send(ctx, producer.Message{ID: "1", RoutingKey: "nowhere"}, func(context.Context) error {
		ran = true
		return nil
	})
	if !errors.Is(err, producer.ErrUnavailable) || !strings.Contains(err.Error(), "no stream") || ran {
		t.Errorf("got %v, business ran: %t", err, ran)
	}
}

// serve serves a coordinator until the test ends.
func serve(t *testing.T, c pb.MessageHandlerServiceServer, options ...grpc.ServerOption) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(options...)
	pb.RegisterMessageHandlerServiceServer(server, c)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		server.Stop()
		serving.Wait()
	})
	return listener.Addr().String()
}

// Close refuses new messages, and ends the streams after the open question.
func TestCloseAnswersOpenQuestions(t *testing.T) {
	t.Parallel()
	a := coordinator(t, embeddedtest.Redis(t))
	asked, answer := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: a.GRPCAddr(), Markers: memory.New(), ConfirmAfter: 100 * time.Millisecond,
		Logger: slog.New(slog.DiscardHandler),
		Resolve: func(context.Context, string, bool) (marker.Verdict, error) {
			once.Do(func() { close(asked) })
			<-answer
			return marker.Committed, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.SendHalf(t.Context(), producer.Message{ID: "1", RoutingKey: "nowhere"}); err != nil {
		t.Fatal(err)
	}
	<-asked
	closed := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		closed <- p.Close(ctx)
	}()
	servers.Eventually(t, 10*time.Second, "new messages are refused", func() bool {
		_, err := p.SendHalf(t.Context(), producer.Message{ID: "2", RoutingKey: "nowhere"})
		return errors.Is(err, producer.ErrClosed)
	})
	close(answer)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	awaitSendable(t, a, "1")
}
