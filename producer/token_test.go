package producer_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// doorman notes which token each call of a coordinator shows.
type doorman struct {
	mu    sync.Mutex
	shown map[string]string
}

func (d *doorman) note(ctx context.Context, method string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	d.shown[method[strings.LastIndexByte(method, '/')+1:]] = strings.Join(values, ",")
}

func (d *doorman) of(method string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.shown[method]
}

// guardedDoor serves a coordinator that notes tokens, with the certificate of 127.0.0.1 where there is an authority.
func guardedDoor(t *testing.T, a *certstest.Authority) (address string, d *doorman) {
	t.Helper()
	d = &doorman{shown: map[string]string{}}
	options := []grpc.ServerOption{
		grpc.UnaryInterceptor(func(
			ctx context.Context, r any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
		) (any, error) {
			d.note(ctx, info.FullMethod)
			return next(ctx, r)
		}),
		grpc.StreamInterceptor(func(
			s any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler,
		) error {
			d.note(stream.Context(), info.FullMethod)
			return next(s, stream)
		}),
	}
	if a != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(a.Server("127.0.0.1"))))
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := grpc.NewServer(options...)
	pb.RegisterMessageHandlerServiceServer(server, newCoordinator())
	serving := make(chan struct{})
	go func() {
		defer close(serving)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-serving
	})
	return listener.Addr().String(), d
}

// A producer shows its token on every call, with TLS and on the loopback, and a new token without a new connection.
func TestTokenIsShownOnEveryCall(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	file := filepath.Join(t.TempDir(), "token")
	writeToken := func(token string) {
		must(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	}
	writeToken(goodToken)
	for name, secured := range map[string]*certstest.Authority{"TLS": a, "loopback": nil} {
		address, d := guardedDoor(t, secured)
		config := producer.Config{
			Name: "orders", Coordinator: address, TokenFile: file, Markers: memory.New(), Logger: slog.New(slog.DiscardHandler),
		}
		if secured != nil {
			config.TLS = a.Client("orders.shop")
		}
		p, err := producer.New(config)
		must(t, err)
		use := func(id string) {
			if _, err := p.SendHalf(t.Context(), message(id)); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Submit(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			must(t, p.Rollback(t.Context(), id+"b", "test"))
		}
		use("1")
		for _, method := range []string{"SendHalfMessages", "SubmitAll", "Rollback", "Attend"} {
			if got := d.of(method); got != "Bearer "+goodToken {
				t.Errorf("%s: %s shows %q", name, method, got)
			}
		}
		writeToken(otherToken)
		for deadline := time.Now().Add(20 * time.Second); d.of("SubmitAll") != "Bearer "+otherToken; {
			if time.Now().After(deadline) {
				t.Fatalf("%s: the new token is not shown: %q", name, d.of("SubmitAll"))
			}
			use(time.Now().String())
		}
		writeToken(goodToken)
		if err := p.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A token never leaves the machine without TLS, and no error quotes a token.
func TestTokenIsRefusedWithoutTLS(t *testing.T) {
	t.Parallel()
	plain := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	for name, c := range map[string]struct {
		config producer.Config
		want   string
	}{
		"a name":         {producer.Config{Coordinator: "msghandler:9090", Token: goodToken}, "shown over TLS only"},
		"an address":     {producer.Config{Coordinator: "192.0.2.1:9090", Token: goodToken}, "shown over TLS only"},
		"one of several": {producer.Config{Coordinator: "127.0.0.1:1, a:1", Token: goodToken}, "shown over TLS only"},
		"a target":       {producer.Config{Coordinator: "dns:///a:9090", Token: goodToken}, "shown over TLS only"},
		"by hand": {
			producer.Config{Coordinator: "a:1", Token: goodToken, DialOptions: plain}, "transport level security",
		},
		"of two":           {producer.Config{Coordinator: "[::1]:1", Token: goodToken, TokenFile: "x"}, "both set"},
		"a short one":      {producer.Config{Coordinator: "127.0.0.1:1", Token: "g00d"}, "Token has fewer than 16"},
		"a missing file":   {producer.Config{Coordinator: "localhost:1", TokenFile: "/nowhere/token"}, "/nowhere/token"},
		"a name like it":   {producer.Config{Coordinator: "localhost.shop:1", Token: goodToken}, "shown over TLS only"},
		"a name of DNS":    {producer.Config{Coordinator: "x.localhost:1", Token: goodToken}, "shown over TLS only"},
		"a final dot":      {producer.Config{Coordinator: "localhost.:1", Token: goodToken}, "shown over TLS only"},
		"loopback of IPv6": {producer.Config{Coordinator: "dns:///[::1]:1", Token: goodToken}, ""},
		"a socket":         {producer.Config{Coordinator: "unix:///run/msghandler", Token: goodToken}, ""},
	} {
		c.config.Name, c.config.Markers, c.config.CallbackTarget = "orders", memory.New(), "orders:7001"
		c.config.Coordinators.Anyone = true
		p, err := producer.New(c.config)
		if err == nil {
			_ = p.Close(t.Context())
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) ||
			err != nil && strings.Contains(err.Error(), "g00d") {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}
