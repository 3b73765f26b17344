package producer_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// counted dials, and counts how often.
func counted(dials *atomic.Int32) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		dials.Add(1)
		return new(net.Dialer).DialContext(ctx, "tcp", addr)
	})
}

// The coordinator ends connections all the time, because of their age and because they are idle. The SDK's users see
// no error, and a call that was under way goes on.
func TestConnectionAgeFailsNoCall(t *testing.T) {
	const ages, patience = 5, time.Minute
	t.Parallel()
	broker := embeddedtest.Broker(t)
	a := coordinator(t, embeddedtest.Redis(t), func(c *config.Config, b *app.Bounds) {
		c.AMQP.URLs, c.Callbacks.Allow = []string{broker}, []string{"127.0.0.1:*"}
		b.ConnectionAge, b.ConnectionIdle = time.Second, time.Second
	})
	declareQueue(t, broker, "bills")
	var dials atomic.Int32
	p := newAgingProducer(t, a.GRPCAddr(), &dials)
	sent := 0
	deliver := func(id string) {
		t.Helper()
		message := producer.Message{ID: id, RoutingKey: "bills", Body: []byte("one")}
		if err := p.Send(t.Context(), message, func(context.Context) error { return nil }); err != nil {
			t.Fatalf("message %s, connection %d: %v", id, dials.Load(), err)
		}
		if state, err := p.Wait(t.Context(), id); err != nil || state != producer.StateDone {
			t.Fatalf("message %s, connection %d: %v, %v", id, dials.Load(), state, err)
		}
	}
	deliver("first")
	ended := tailUntil(t, a.GRPCAddr(), "last")
	for deadline := time.Now().Add(patience); dials.Load() <= ages; sent++ {
		if time.Now().After(deadline) {
			t.Fatalf("%d connections after %s", dials.Load(), patience)
		}
		deliver(fmt.Sprint(sent))
	}
	deliver("last")
	if err := <-ended; err != nil {
		t.Fatalf("the tail ended: %v", err)
	}
}

// declareQueue declares a queue once the broker listens.
func declareQueue(t *testing.T, broker, queue string) {
	t.Helper()
	servers.Eventually(t, 20*time.Second, "the queue is declared", func() bool {
		conn, err := amqp.Dial(broker)
		if err != nil {
			return false
		}
		defer conn.Close()
		channel, err := conn.Channel()
		if err != nil {
			return false
		}
		_, err = channel.QueueDeclare(queue, true, false, false, false, nil)
		return err == nil
	})
}

// newAgingProducer serves a producer whose connections to the coordinator are counted.
func newAgingProducer(t *testing.T, coordinator string, dials *atomic.Int32) *producer.Producer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := producer.New(producer.Config{
		Name: "billing", Coordinator: coordinator, CallbackTarget: listener.Addr().String(), Markers: memory.New(),
		DialOptions: []grpc.DialOption{counted(dials)}, Coordinators: producer.Coordinators{Anyone: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	p.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		_ = p.Close(context.WithoutCancel(t.Context()))
		server.Stop()
		serving.Wait()
	})
	return p
}

// tailUntil tails a coordinator on a connection of its own until the tail names a message. The result receives nil
// then, or the error of a tail that ended before.
func tailUntil(t *testing.T, coordinator, last string) <-chan error {
	t.Helper()
	conn, err := grpc.NewClient(coordinator, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	tail, err := adminv1.NewAdminServiceClient(conn).TailMessages(t.Context(), &adminv1.TailMessagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for {
			news, err := tail.Recv()
			if err != nil {
				ended <- err
				return
			}
			for _, move := range news.GetMoves() {
				if move.GetId() == last {
					ended <- nil
					return
				}
			}
		}
	}()
	return ended
}
