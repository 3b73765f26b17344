package doctor_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/producer"
	"github.com/msghandler/msghandler/producer/marker/memory"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

// site is a healthy set-up on private servers: a durable Redis, RabbitMQ, a coordinator and a producer with the SDK.
type site struct {
	t     *testing.T
	redis *servers.RedisServer
	app   *app.App
	e     doctor.Examination
}

func newSite(t *testing.T, broker string, change ...func(c *config.Config)) *site {
	t.Helper()
	redis := servers.Redis(t, "--appendfsync", "always")
	return newSiteOn(t, broker, redis, redis.URL(), change...)
}

// newSiteOn is a site whose coordinator connects to Redis with the given URL.
func newSiteOn(
	t *testing.T, broker string, redis *servers.RedisServer, redisURL string, change ...func(c *config.Config),
) *site {
	t.Helper()
	s := &site{t: t, redis: redis}
	c := config.Default()
	c.GRPC.Addr, c.HTTP.Addr = "127.0.0.1:0", "127.0.0.1:0"
	c.Redis.URL, c.AMQP.URLs = redisURL, []string{broker}
	c.Callbacks.Allow = []string{"127.0.0.1:*"}
	c.Send.Backoff = []time.Duration{time.Millisecond}
	for _, f := range change {
		f(&c)
	}
	s.startCoordinator(c)
	orders := serveProducer(t, sdk(t, s.app.GRPCAddr()).Register)
	c.Producers["orders"] = config.Producer{Target: orders}
	s.e = doctor.Examination{
		Settings: c, Coordinator: doctor.Coordinator{Address: s.app.GRPCAddr()}, Producers: map[string]string{},
	}
	return s
}

func (s *site) startCoordinator(c config.Config) {
	s.t.Helper()
	a, err := app.New(s.t.Context(), c, app.Deps{Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(s.t, err)
	ended := make(chan error, 1)
	go func() { ended <- a.Run(context.Background()) }()
	s.t.Cleanup(func() {
		_ = a.Stop(context.Background()) // its servers may be away by then
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
	})
	servers.Eventually(s.t, time.Minute, "the coordinator is ready", func() bool {
		answer, err := http.Get("http://" + a.HTTPAddr() + "/readyz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return err == nil && answer.StatusCode == http.StatusOK && strings.Contains(string(body), `"degraded": false`)
	})
	s.app = a
}

// sdk is a producer of the SDK.
func sdk(t *testing.T, coordinator string) *producer.Producer {
	t.Helper()
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: coordinator, Markers: memory.New(), Coordinators: producer.Coordinators{Anyone: true},
	})
	must.Succeed(t, err)
	t.Cleanup(func() { _ = p.Close(context.Background()) })
	return p
}

// serveProducer serves the registered services and returns the address.
func serveProducer(t *testing.T, register func(grpc.ServiceRegistrar)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	server := grpc.NewServer()
	register(server)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	return listener.Addr().String()
}

// other is a producer with scripted answers. Without a script it keeps the contract.
type other struct {
	pb.UnimplementedProducerServiceServer
	confirm func(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error)
	drop    func(ctx context.Context, r *pb.DeleteBusinessRequest) error
}

func (o other) serve(t *testing.T) string {
	t.Helper()
	return serveProducer(t, func(r grpc.ServiceRegistrar) { pb.RegisterProducerServiceServer(r, o) })
}

func (o other) Confirm(ctx context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	if o.confirm != nil {
		return o.confirm(ctx, r)
	}
	return say(pb.Verdict_VERDICT_UNKNOWN)(ctx, r)
}

func (o other) DeleteBusiness(ctx context.Context, r *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	if o.drop != nil {
		if err := o.drop(ctx, r); err != nil {
			return nil, err
		}
	}
	return &pb.DeleteBusinessResponse{}, nil
}

// say answers the same of every id.
func say(v pb.Verdict) func(context.Context, *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	return func(_ context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
		answer := &pb.ConfirmResponse{}
		for _, id := range r.GetIds() {
			answer.Confirmations = append(answer.Confirmations, &pb.Confirmation{Id: id, Verdict: v})
		}
		return answer, nil
	}
}

// complaints are the names of the findings that are not OK, once each, in order. Notes are left out: they depend on the
// servers' versions.
func complaints(t *testing.T, found []doctor.Finding) []string {
	t.Helper()
	var names []string
	for _, f := range found {
		if f.Severity == doctor.OK {
			continue
		}
		if f.Name == "" || f.What == "" || f.Why == "" || f.Remedy == "" {
			t.Errorf("%+v lacks the problem, the reason or the action", f)
		}
		if f.Severity > doctor.Note {
			names = append(names, f.Name)
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(names)))
}
