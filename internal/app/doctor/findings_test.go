package doctor_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/app/doctor"
	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// dial is a client of the site's coordinator.
func (s *site) dial() *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(s.app.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	must.Succeed(s.t, err)
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// awaitFinding waits until the coordinator sees something to act on by itself.
func (s *site) awaitFinding() {
	s.t.Helper()
	admin := adminv1.NewAdminServiceClient(s.dial())
	servers.Eventually(s.t, time.Minute, "the coordinator finds something", func() bool {
		stats, err := admin.GetStats(s.t.Context(), &adminv1.GetStatsRequest{})
		return err == nil && len(stats.GetFindings()) > 0
	})
}

// watch has another coordinator, on other data, watch queues.
func (s *site) watch(change func(c *config.Config)) {
	s.t.Helper()
	watching := s.e.Settings
	watching.Redis.Prefix = "watching"
	change(&watching)
	s.startCoordinator(watching)
	s.e.Settings, s.e.Coordinator.Address = watching, s.app.GRPCAddr()
	s.awaitFinding()
}

// fill puts messages into a queue without a consumer.
func (s *site) fill(queue string, messages int) {
	s.t.Helper()
	conn, err := amqp.Dial(s.e.Settings.AMQP.URLs[0])
	must.Succeed(s.t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must.Succeed(s.t, err)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
		s.t.Fatal(err)
	}
	for range messages {
		must.Succeed(s.t, ch.PublishWithContext(s.t.Context(), "", queue, false, false, amqp.Publishing{}))
	}
}

// plantRefusedProducer has a producer name a forbidden callback target.
func plantRefusedProducer(s *site) {
	_, err := pb.NewMessageHandlerServiceClient(s.dial()).SendHalfMessage(s.t.Context(), &pb.SendHalfMessageRequest{
		Producer: "stock", CallbackTarget: "stock.svc:9000", Message: &pb.Message{Id: "1", RoutingKey: "paid"},
	})
	if status.Code(err) != codes.PermissionDenied {
		s.t.Fatalf("the message is not refused: %v", err)
	}
}

func plantDeadLetters(s *site) {
	s.fill("payments.dead", 17)
	s.watch(func(c *config.Config) { c.Events.DeadLetterQueues = []string{"payments.dead"} })
}

func plantLongQueue(s *site) {
	s.fill("payments.long", 5)
	s.watch(func(c *config.Config) { c.Events.Queues, c.Events.QueueMessages = []string{"payments.long"}, 5 })
}

// The operators of a refused producer must learn the cause and the remedy, as the producer does.
func TestARefusalIsExplained(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	plantRefusedProducer(s)
	for _, f := range doctor.Examine(t.Context(), s.e) {
		if f.Name != "producer-refused" {
			continue
		}
		if f.Severity != doctor.Trouble || !strings.Contains(f.What, "producer stock") ||
			!strings.Contains(f.What, "stock.svc:9000") ||
			!strings.Contains(f.Remedy, "callbacks.allow") {
			t.Errorf("the doctor says %+v", f)
		}
		return
	}
	t.Error("the doctor has no such finding")
}

// The coordinator and the doctor look at the memory of the same Redis.
func TestFindingOfCoordinatorIsNotRepeated(t *testing.T) {
	t.Parallel()
	s := newSite(t, servers.RabbitMQ(t).URL)
	fillMemory(99.9)(s)
	s.awaitFinding()
	told := 0
	for _, f := range doctor.Examine(t.Context(), s.e) {
		if f.Name == "redis-full" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("redis-full is told %d times", told)
	}
}
