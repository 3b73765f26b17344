package msghandlertest

import (
	"cmp"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
)

// closing bounds the end of a producer, whose coordinator may be away.
const closing = 2 * time.Second

// Producer returns a producer of the SDK that is connected to the coordinator and answers its questions, until the test
// ends. Coordinator and CallbackTarget of the configuration are set. Default for Name: "test"; for Markers: in memory.
// Services with a gRPC server of their own make their producer themselves, with Coordinator: c.Addr().
func (c *Coordinator) Producer(t testing.TB, config producer.Config) *producer.Producer {
	t.Helper()
	listener, err := net.Listen("tcp", anyPort)
	if err != nil {
		t.Fatalf("msghandlertest: %v", err)
	}
	config.Name = cmp.Or(config.Name, "test")
	config.Coordinator, config.CallbackTarget = c.Addr(), listener.Addr().String()
	config.Coordinators = producer.Coordinators{Anyone: true}
	config.Logger = cmp.Or(config.Logger, c.options.logger)
	if config.Markers == nil {
		config.Markers = memory.New()
	}
	p, err := producer.New(config)
	if err != nil {
		_ = listener.Close()
		t.Fatalf("msghandlertest: %v", err)
	}
	server := grpc.NewServer()
	p.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // Stop ends it
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closing)
		defer cancel()
		_ = p.Close(ctx) // Submits that are left do not matter any more
		server.Stop()
		serving.Wait()
	})
	return p
}
