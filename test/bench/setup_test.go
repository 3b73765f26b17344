package bench

import (
	"context"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/dev/bench"
	"github.com/msghandler/msghandler/dev/bench/order"
	"github.com/msghandler/msghandler/dev/bench/usage"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

const (
	queueName = "bench"
	producer  = "bench"
)

// setup is the measured system, running.
type setup struct {
	b      *testing.B
	redis  *servers.RedisServer
	rabbit *servers.RabbitServer
	// binary is the coordinator's program, all are the coordinators; api, admin, console and pprof belong to the first.
	binary    string
	all       []*coordinator
	api       pb.MessageHandlerServiceClient
	admin     adminv1.AdminServiceClient
	console   string
	pprof     string
	callbacks string
	// client is what BenchmarkConsole sends PINGs with.
	client *redis.Client
	bodies order.Bodies
	ids    atomic.Uint64
}

func newSetup(b *testing.B) *setup {
	b.Helper()
	s := newWorld(b, servers.PrivateRabbitMQ(b), buildCoordinator(b))
	for range *coordinators {
		s.startCoordinator(s.redis.URL(), s.rabbit.URL)
	}
	return s
}

// newWorld is a setup without coordinators, with a Redis of its own.
func newWorld(b *testing.B, rabbit *servers.RabbitServer, binary string) *setup {
	b.Helper()
	s := &setup{b: b, redis: servers.Redis(b), rabbit: rabbit, binary: binary, bodies: order.New(*bodySize)}
	s.callbacks = s.serve(committed{})
	return s
}

// startCoordinator starts one more coordinator; more is for its environment.
func (s *setup) startCoordinator(redis, broker string, more ...string) {
	c := newCoordinator(s, append(more, "MSGHANDLER_REDIS_URL="+redis, "MSGHANDLER_AMQP_URL="+broker))
	c.start()
	c.await()
	s.all = append(s.all, c)
	if len(s.all) > 1 {
		return
	}
	s.console, s.pprof = c.console(), c.pprof
	conn, err := grpc.NewClient(c.api, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	s.b.Cleanup(func() { conn.Close() })
	s.api, s.admin = pb.NewMessageHandlerServiceClient(conn), adminv1.NewAdminServiceClient(conn)
}

func (s *setup) must(err error) {
	s.b.Helper()
	if err != nil {
		s.b.Fatal(err)
	}
}

// measure puts a load on the coordinators; a lost or an additional message is an error.
func (s *setup) measure(load bench.Config) bench.Report {
	s.b.Helper()
	report, err := bench.Run(context.Background(), load)
	s.judge(report, err)
	return report
}

func (s *setup) judge(report bench.Report, err error) {
	s.b.Helper()
	s.must(err)
	if report.Failed+report.Unbegun > 0 || !report.Balance.Even() {
		s.b.Errorf("%s: %d failed, %d never began, balance %+v", report.Settings.Mode, report.Failed, report.Unbegun,
			report.Balance)
	}
}

// processes are the processes whose costs are reported.
func (s *setup) processes() usage.Processes {
	processes := usage.Processes{
		bench.Redis: {s.redis.Pid()}, bench.RabbitMQ: {s.rabbit.Pid()}, bench.Producer: {os.Getpid()},
	}
	for _, c := range s.running() {
		processes[bench.Coordinator] = append(processes[bench.Coordinator], c.process.Process.Pid)
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

// serve serves a producer's callbacks, and says where.
func (s *setup) serve(answers pb.ProducerServiceServer) (target string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	server := grpc.NewServer()
	pb.RegisterProducerServiceServer(server, answers)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	s.b.Cleanup(func() { server.Stop(); serving.Wait() })
	return listener.Addr().String()
}

// deadTarget is a callback target without a listener.
func (s *setup) deadTarget() (target string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	s.must(err)
	s.must(listener.Close())
	return listener.Addr().String()
}

const (
	// part is the number of messages in a storing call, and storing the number of calls under way at once.
	part    = 1000
	storing = 4
)

// store has a producer store n half messages, each of which is due so long after.
func (s *setup) store(producer, target string, n int, after func() time.Duration) {
	var callers sync.WaitGroup
	var taken atomic.Int64
	for range storing {
		callers.Go(func() {
			for left := n; left > 0; {
				left = n + part - int(taken.Add(part))
				s.storePart(&pb.SendHalfMessagesRequest{
					Producer: producer, CallbackTarget: target, ConfirmAfter: durationpb.New(after()),
				}, min(left, part))
			}
		})
	}
	callers.Wait()
}

func (s *setup) storePart(half *pb.SendHalfMessagesRequest, n int) {
	if n <= 0 {
		return
	}
	for range n {
		half.Messages = append(half.Messages, s.message())
	}
	stored, err := s.api.SendHalfMessages(context.Background(), half)
	s.allIn(stored.GetOutcomes(), err, pb.State_STATE_PENDING)
}

func (s *setup) message() *pb.Message {
	n := s.ids.Add(1)
	return &pb.Message{Id: idPrefix + strconv.FormatUint(n, 10), RoutingKey: queueName, Body: s.bodies.Of(n)}
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
