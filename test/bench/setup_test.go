package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/msghandler/msghandler/internal/bench/compare"
	"github.com/msghandler/msghandler/internal/bench/usage"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

const (
	queueName = "bench"
	producer  = "bench"
)

// setup is what is measured, running.
type setup struct {
	b      *testing.B
	redis  *servers.RedisServer
	rabbit *servers.RabbitServer
	// binary is the coordinator's program, addresses where coordinators serve; coordinator, api, console and pprof are those
	// of the first.
	binary      string
	addresses   []string
	coordinator *exec.Cmd
	all         []*exec.Cmd
	api         pb.MessageHandlerServiceClient
	admin       pb.AdminServiceClient
	console     string
	pprof       string
	callbacks   string
	// client is what BenchmarkConsole sends PINGs with.
	client *redis.Client
	body   []byte
	ids    atomic.Int64
}

func newSetup(b *testing.B) *setup {
	b.Helper()
	s := &setup{b: b, redis: servers.Redis(b), rabbit: servers.PrivateRabbitMQ(b), body: make([]byte, *bodySize)}
	s.serveCallbacks()
	for range *coordinators {
		s.startCoordinator(s.redis.URL(), s.rabbit.URL)
	}
	return s
}

// startCoordinator starts one more coordinator; more is for its environment.
func (s *setup) startCoordinator(redis, broker string, more ...string) {
	if s.binary == "" {
		s.binary = buildCoordinator(s.b)
	}
	addresses := servers.Addresses(s.b, 3)
	coordinator := exec.Command(s.binary, "serve")
	coordinator.Env = append(os.Environ(),
		"MSGHANDLER_GRPC_ADDR="+addresses[0], "MSGHANDLER_HTTP_ADDR="+addresses[1], "PPROF_ADDR="+addresses[2],
		"MSGHANDLER_REDIS_URL="+redis, "MSGHANDLER_AMQP_URL="+broker,
		"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*", "MSGHANDLER_DONE_RETENTION=10s")
	coordinator.Env = append(coordinator.Env, more...)
	coordinator.Stderr = os.Stderr
	s.must(coordinator.Start())
	s.b.Cleanup(func() {
		_ = coordinator.Process.Kill()
		_ = coordinator.Wait()
	})
	servers.Eventually(s.b, 30*time.Second, "the coordinator is ready", func() bool {
		response, err := http.Get("http://" + addresses[1] + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	s.addresses, s.all = append(s.addresses, addresses[0]), append(s.all, coordinator)
	if len(s.all) > 1 {
		return
	}
	s.coordinator, s.console, s.pprof = coordinator, "http://"+addresses[1], addresses[2]
	conn, err := grpc.NewClient(addresses[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	s.b.Cleanup(func() { conn.Close() })
	s.api, s.admin = pb.NewMessageHandlerServiceClient(conn), pb.NewAdminServiceClient(conn)
}

func (s *setup) must(err error) {
	s.b.Helper()
	if err != nil {
		s.b.Fatal(err)
	}
}

// processes are those whose costs are told.
func (s *setup) processes() usage.Processes {
	processes := usage.Processes{
		compare.Redis: {s.redis.Pid()}, compare.RabbitMQ: {s.rabbit.Pid()}, compare.Producer: {os.Getpid()},
	}
	for _, coordinator := range s.all {
		processes[compare.Coordinator] = append(processes[compare.Coordinator], coordinator.Process.Pid)
	}
	return processes
}

// committed is a producer all of whose transactions have committed.
type committed struct {
	pb.UnimplementedProducerServiceServer
}

func (committed) Confirm(_ context.Context, r *pb.ConfirmRequest) (*pb.ConfirmResponse, error) {
	response := &pb.ConfirmResponse{Confirmations: make([]*pb.Confirmation, len(r.GetIds()))}
	for i, id := range r.GetIds() {
		response.Confirmations[i] = &pb.Confirmation{Id: id, Verdict: pb.Verdict_VERDICT_COMMITTED}
	}
	return response, nil
}

func (committed) DeleteBusiness(context.Context, *pb.DeleteBusinessRequest) (*pb.DeleteBusinessResponse, error) {
	return &pb.DeleteBusinessResponse{}, nil
}

func (s *setup) serveCallbacks() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	server := grpc.NewServer()
	pb.RegisterProducerServiceServer(server, committed{})
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	s.b.Cleanup(func() { server.Stop(); serving.Wait() })
	s.callbacks = listener.Addr().String()
}

func (s *setup) message() *pb.Message {
	return &pb.Message{Id: fmt.Sprintf("m-%d", s.ids.Add(1)), RoutingKey: queueName, Body: s.body}
}

func (s *setup) allIn(outcomes []*pb.Outcome, err error, state pb.State) {
	if err != nil {
		s.b.Error(err)
	}
	for _, o := range outcomes {
		if o.GetCode() != 0 || o.GetState() != state {
			s.b.Errorf("outcome %v, want %v", o, state)
			return
		}
	}
}
