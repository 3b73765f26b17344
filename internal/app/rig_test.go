package app_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// settings is a configuration on free ports. It names no servers: see onEmbedded.
func settings(change ...func(*config.Config)) config.Config {
	c := config.Default()
	c.GRPC.Addr, c.HTTP.Addr = "127.0.0.1:0", "127.0.0.1:0"
	c.Redis.URL, c.AMQP.URLs = "", nil
	c.Confirm.Schedule, c.Send.Schedule = "@every 100ms", "@every 100ms"
	c.Callbacks.Allow = []string{"127.0.0.1:*"}
	c.Shutdown.Grace = 5 * time.Second
	for _, f := range change {
		f(&c)
	}
	return c
}

// onEmbedded has embedded servers for those that a configuration does not name.
func onEmbedded(t *testing.T, c config.Config) config.Config {
	t.Helper()
	if c.Redis.URL == "" {
		c.Redis.URL = embeddedtest.Redis(t)
	}
	if len(c.AMQP.URLs) == 0 {
		c.AMQP.URLs = []string{embeddedtest.Broker(t)}
	}
	return c
}

// running is a coordinator in the background.
type running struct {
	*app.App
	// amqp is the URL of the broker.
	amqp  string
	log   *servers.Log
	ended chan error
}

// start runs a coordinator until the test ends.
func start(t *testing.T, c config.Config, bounds ...app.Bounds) *running {
	t.Helper()
	c = onEmbedded(t, c)
	log := &servers.Log{}
	deps := app.Deps{Version: "v0", Logger: slog.New(slog.NewTextHandler(log, nil))}
	for _, b := range bounds {
		deps.Bounds = b
	}
	a, err := app.New(t.Context(), c, deps)
	must.Succeed(t, err)
	r := &running{App: a, amqp: c.AMQP.URLs[0], log: log, ended: make(chan error, 1)}
	go func() { r.ended <- a.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v\n%s", err, log)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	return r
}

// ready asks /readyz and returns the failing checks.
func (r *running) ready() (ok bool, failing string) {
	answer, err := http.Get("http://" + r.HTTPAddr() + "/readyz")
	if err != nil {
		return false, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return false, err.Error()
	}
	return answer.StatusCode == http.StatusOK, string(body)
}

func (r *running) awaitReady(t *testing.T) {
	t.Helper()
	defer func() {
		if t.Failed() {
			_, body := r.ready()
			t.Logf("%s\n%s", body, r.log)
		}
	}()
	servers.Eventually(t, 20*time.Second, "the coordinator is ready, and no check fails", func() bool {
		ok, body := r.ready()
		return ok && strings.Contains(body, `"degraded": false`)
	})
}

func dial(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// producers makes calls as a producer, and admin as an operator.
func (r *running) producers(t *testing.T) msghandlerv1.MessageHandlerServiceClient {
	t.Helper()
	return msghandlerv1.NewMessageHandlerServiceClient(dial(t, r.GRPCAddr()))
}

func (r *running) admin(t *testing.T) adminv1.AdminServiceClient {
	t.Helper()
	return adminv1.NewAdminServiceClient(dial(t, r.GRPCAddr()))
}

// orders is a producer that has committed everything.
type orders struct {
	msghandlerv1.UnimplementedProducerServiceServer
	addr string

	mu      sync.Mutex
	asked   map[string]int
	deleted map[string]int
	traced  string
}

func startOrders(t *testing.T) *orders {
	t.Helper()
	p := &orders{asked: map[string]int{}, deleted: map[string]int{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	p.addr = listener.Addr().String()
	s := grpc.NewServer()
	msghandlerv1.RegisterProducerServiceServer(s, p)
	go func() { _ = s.Serve(listener) }()
	t.Cleanup(s.Stop)
	return p
}

func (p *orders) Confirm(ctx context.Context, r *msghandlerv1.ConfirmRequest) (*msghandlerv1.ConfirmResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.traced = strings.Join(metadata.ValueFromIncomingContext(ctx, "traceparent"), ",")
	answer := &msghandlerv1.ConfirmResponse{}
	for _, id := range r.GetIds() {
		p.asked[id]++
		answer.Confirmations = append(answer.Confirmations,
			&msghandlerv1.Confirmation{Id: id, Verdict: msghandlerv1.Verdict_VERDICT_COMMITTED})
	}
	return answer, nil
}

func (p *orders) DeleteBusiness(
	_ context.Context, r *msghandlerv1.DeleteBusinessRequest,
) (*msghandlerv1.DeleteBusinessResponse, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range r.GetIds() {
		p.deleted[id]++
	}
	return &msghandlerv1.DeleteBusinessResponse{}, nil
}

// trace is the trace context of the last Confirm.
func (p *orders) trace() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.traced
}

func (p *orders) counts(id string) (asked, deleted int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[id], p.deleted[id]
}

// queue declares a queue and returns its deliveries.
func (r *running) queue(t *testing.T, name string) <-chan amqp.Delivery {
	t.Helper()
	conn, err := amqp.Dial(r.amqp)
	must.Succeed(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	ch, err := conn.Channel()
	must.Succeed(t, err)
	if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume(name, "", true, false, false, false, nil)
	must.Succeed(t, err)
	return deliveries
}

func half(p *orders, id string) *msghandlerv1.SendHalfMessageRequest {
	return &msghandlerv1.SendHalfMessageRequest{
		Producer: "orders", CallbackTarget: p.addr,
		Message: &msghandlerv1.Message{Id: id, RoutingKey: "paid", Body: []byte("order " + id)},
	}
}
