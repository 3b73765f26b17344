package callback_test

import (
	"log/slog"
	"net"
	"testing"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/callback"
	"github.com/msghandler/msghandler/internal/halfmsg"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
)

// BenchmarkConfirm asks a producer in this process about one message, and about a full batch.
func BenchmarkConfirm(b *testing.B) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(b, err)
	server := grpc.NewServer()
	msghandlerv1.RegisterProducerServiceServer(server, &business{confirm: committed})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	benchmarkConfirm(b, listener.Addr().String())
}

// BenchmarkConfirmByHTTP is BenchmarkConfirm by HTTP. The producer's part is in it too.
func BenchmarkConfirmByHTTP(b *testing.B) { benchmarkConfirm(b, serveHTTP(b, committedHTTP)) }

func benchmarkConfirm(b *testing.B, address string) {
	b.Helper()
	config := callback.Config{Allow: []string{"127.0.0.1:*"}, Logger: slog.New(slog.DiscardHandler)}
	c, err := callback.New(config.WithDefaults())
	must.Succeed(b, err)
	defer c.Close()
	for name, n := range map[string]int{"one": 1, "batch": 500} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				to := halfmsg.Target{Producer: "orders", Address: address}
				if _, err := c.Confirm(b.Context(), to, ids(n), false); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
