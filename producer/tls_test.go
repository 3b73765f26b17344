package producer_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	"github.com/msghandler/msghandler/proto/certs/certstest"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
)

// secured serves a coordinator at two addresses, with certificates for a name.
func secured(t *testing.T, a *certstest.Authority, coordinator *coordinator, name string) (addresses string) {
	t.Helper()
	var all []string
	for range 2 {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		server := grpc.NewServer(grpc.Creds(credentials.NewTLS(a.Server(name))))
		pb.RegisterMessageHandlerServiceServer(server, coordinator)
		serving := make(chan struct{})
		go func() {
			defer close(serving)
			_ = server.Serve(listener)
		}()
		t.Cleanup(func() {
			server.Stop()
			<-serving
		})
		all = append(all, listener.Addr().String())
	}
	return strings.Join(all, ", ")
}

// Each of several coordinators has the certificate of its own host.
func TestCoordinatorIsDialedWithTLS(t *testing.T) {
	t.Parallel()
	a := certstest.NewAuthority(t)
	coordinator := newCoordinator()
	own, shared := secured(t, a, coordinator, "127.0.0.1"), secured(t, a, coordinator, "msghandler.shop")
	send := func(change func(*producer.Config)) error {
		config := producer.Config{Name: "orders", Coordinator: own, Markers: memory.New(), SendTimeout: time.Second}
		change(&config)
		p, err := producer.New(config)
		must(t, err)
		defer p.Close(t.Context())
		for _, id := range []string{"1", "2", "3"} { // one goes to the other
			if _, err := p.SendHalf(t.Context(), message(id)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := send(func(c *producer.Config) { c.TLS = a.Client("orders.shop"); c.SendTimeout = time.Minute }); err != nil {
		t.Errorf("with TLS: %v", err)
	}
	named := a.Client("orders.shop")
	named.ServerName = "msghandler.shop"
	for name, change := range map[string]func(*producer.Config){
		"named": func(c *producer.Config) { c.TLS = named },
		"named, by hand": func(c *producer.Config) {
			c.DialOptions = []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(named))}
		},
	} {
		err := send(func(c *producer.Config) { change(c); c.Coordinator, c.SendTimeout = shared, time.Minute })
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, change := range map[string]func(*producer.Config){
		"without":          func(*producer.Config) {},
		"no certificate":   func(c *producer.Config) { c.TLS = a.Client() },
		"for another name": func(c *producer.Config) { c.TLS = a.Client("orders.shop"); c.TLS.ServerName = "coordinators" },
		"another's, by hand": func(c *producer.Config) {
			c.DialOptions = []grpc.DialOption{
				grpc.WithTransportCredentials(credentials.NewTLS(certstest.NewAuthority(t).Client("x"))),
			}
		},
	} {
		if err := send(change); err == nil {
			t.Errorf("%s: a half message was stored", name)
		}
	}
}
