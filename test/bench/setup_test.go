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

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

const (
	queueName = "bench"
	producer  = "bench"
)

var processNames = []string{"coordinator", "Redis", "RabbitMQ", "producer"}

// setup is what is measured, running.
type setup struct {
	b           *testing.B
	redis       *servers.RedisServer
	rabbit      *servers.RabbitServer
	coordinator *exec.Cmd
	client      *redis.Client
	channel     *amqp.Channel
	api         pb.MessageHandlerServiceClient
	admin       pb.AdminServiceClient
	callbacks   string
	console     string
	body        []byte
	ids         atomic.Int64
}

func newSetup(b *testing.B) *setup {
	b.Helper()
	s := &setup{b: b, redis: servers.Redis(b), rabbit: servers.PrivateRabbitMQ(b), body: make([]byte, *bodySize)}
	s.client = redis.NewClient(&redis.Options{Addr: s.redis.Addr, Protocol: 2})
	b.Cleanup(func() { s.client.Close() })
	s.declareQueue()
	s.serveCallbacks()
	s.startCoordinator(s.rabbit.URL)
	return s
}

func (s *setup) declareQueue() {
	conn, err := amqp.Dial(s.rabbit.URL)
	s.must(err)
	s.b.Cleanup(func() { conn.Close() })
	s.channel, err = conn.Channel()
	s.must(err)
	_, err = s.channel.QueueDeclare(queueName, true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
	s.must(err)
}

func (s *setup) startCoordinator(broker string) {
	addresses := servers.Addresses(s.b, 2)
	s.coordinator = exec.Command(buildCoordinator(s.b), "serve")
	s.coordinator.Env = append(os.Environ(),
		"MSGHANDLER_GRPC_ADDR="+addresses[0], "MSGHANDLER_HTTP_ADDR="+addresses[1],
		"MSGHANDLER_REDIS_URL="+s.redis.URL(), "MSGHANDLER_AMQP_URL="+broker,
		"MSGHANDLER_CALLBACKS_ALLOW=127.0.0.1:*", "MSGHANDLER_DONE_RETENTION=10s")
	s.coordinator.Stderr = os.Stderr
	s.must(s.coordinator.Start())
	s.b.Cleanup(func() {
		_ = s.coordinator.Process.Kill()
		_ = s.coordinator.Wait()
	})
	servers.Eventually(s.b, 30*time.Second, "the coordinator is ready", func() bool {
		response, err := http.Get("http://" + addresses[1] + "/readyz")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	conn, err := grpc.NewClient(addresses[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	s.b.Cleanup(func() { conn.Close() })
	s.api, s.admin = pb.NewMessageHandlerServiceClient(conn), pb.NewAdminServiceClient(conn)
	s.console = "http://" + addresses[1]
}

func (s *setup) must(err error) {
	s.b.Helper()
	if err != nil {
		s.b.Fatal(err)
	}
}

func (s *setup) processTimes() map[string]time.Duration {
	return map[string]time.Duration{
		"coordinator": processTime(s.b, s.coordinator.Process.Pid),
		"Redis":       processTime(s.b, s.redis.Pid()),
		"RabbitMQ":    processTime(s.b, s.rabbit.Pid()),
		"producer":    processTime(s.b, os.Getpid()),
	}
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

// emptyQueue leaves the next measurement a queue as the first one had it.
func (s *setup) emptyQueue() {
	purged, err := s.channel.QueuePurge(queueName, false)
	s.must(err)
	if purged < *messages {
		s.b.Fatalf("%d messages were acknowledged, but only %d are in the queue", *messages, purged)
	}
}

func (s *setup) message() *pb.Message {
	return &pb.Message{Id: fmt.Sprintf("m-%d", s.ids.Add(1)), RoutingKey: queueName, Body: s.body}
}

// inParallel runs n callers until all messages are taken, take at a time, and returns how long it took altogether and
// each time.
func (s *setup) inParallel(n, take int, do func(count int)) (time.Duration, []time.Duration) {
	var left atomic.Int64
	left.Store(int64(*messages))
	var mu sync.Mutex
	var latencies []time.Duration
	var working sync.WaitGroup
	begun := time.Now()
	for range n {
		working.Go(func() {
			var mine []time.Duration
			for {
				rest := left.Add(-int64(take)) + int64(take)
				if rest <= 0 {
					break
				}
				start := time.Now()
				do(min(take, int(rest)))
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			latencies = append(latencies, mine...)
		})
	}
	working.Wait()
	return time.Since(begun), latencies
}
