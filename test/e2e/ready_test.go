package e2e

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// readyz is the answer of /readyz; the status is 0 without an answer.
func (c *coordinator) readyz() (status int, body string) {
	response, err := http.Get("http://" + c.http + "/readyz")
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// awaitReadyz waits until /readyz has that status, and holds a text.
func (w *world) awaitReadyz(c *coordinator, status int, text string) {
	w.t.Helper()
	var got int
	var body string
	defer func() {
		if w.t.Failed() {
			w.t.Logf("readyz says %d: %s", got, body)
		}
	}()
	servers.Eventually(w.t, 30*time.Second, text, func() bool {
		got, body = c.readyz()
		return got == status && strings.Contains(body, text)
	})
}

// A missing broker must not take coordinators out of service: they accept half messages, which wait in Redis.
func TestCoordinatorsStayReadyWithoutTheBroker(t *testing.T) {
	node := servers.PrivateRabbitMQ(t)
	w := newWorldOn(t, node.URL)
	w.startCoordinators(1)
	c := w.coordinators[0]
	w.bind(w.channel(), "bills", "bill.*", "amq.topic")
	p := newPlainProducer(t, "billing", c.grpc)

	node.Stop()
	w.awaitReadyz(c, http.StatusOK, `"degraded": true`)
	if _, body := c.readyz(); !strings.Contains(body, "not connected") {
		t.Errorf("the checks do not name the broker: %s", body)
	}
	p.sendHalves(time.Minute, &pb.Message{Id: "1", Exchange: "", RoutingKey: "bills", Body: []byte("one")})
	if state := p.submit("1", pb.Wait_WAIT_SENDABLE); state != pb.State_STATE_SENDABLE {
		t.Errorf("without the broker the message is %v", state)
	}
	w.watched(c, healthv1.HealthCheckResponse_SERVING)
	if said, status := programs.Run(t, "msghandler", []string{"MSGHANDLER_SERVER=" + c.grpc}, "stats"); status != 0 {
		t.Errorf("stats, which is the health check of docker-compose.yml, says (%d): %s", status, said)
	}
	// A coordinator that starts meanwhile is as good.
	c.Stop(30 * time.Second)
	w.restart(c)
	w.awaitReadyz(c, http.StatusOK, `"degraded": true`)

	node.Start()
	c.Ready(c.http)
	if got := w.get(w.channel(), "bills"); got.MessageId != "1" || string(got.Body) != "one" {
		t.Errorf("delivered %+v", got)
	}

	w.redis.Stop()
	w.awaitReadyz(c, http.StatusServiceUnavailable, `"ready": false`)
	w.watched(c, healthv1.HealthCheckResponse_NOT_SERVING)
	w.redis.Start()
	c.Ready(c.http)
}

// watched waits until a client that watches the health of the service gets that status, of the whole and of each
// service.
func (w *world) watched(c *coordinator, want healthv1.HealthCheckResponse_ServingStatus) {
	w.t.Helper()
	conn, err := grpc.NewClient(c.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), 30*time.Second)
	defer cancel()
	for _, service := range []string{
		"", pb.MessageHandlerService_ServiceDesc.ServiceName, adminv1.AdminService_ServiceDesc.ServiceName,
	} {
		request := &healthv1.HealthCheckRequest{Service: service}
		stream, err := healthv1.NewHealthClient(conn).Watch(ctx, request, grpc.WaitForReady(true))
		if err != nil {
			w.t.Fatal(err)
		}
		for {
			response, err := stream.Recv()
			if err != nil {
				w.t.Fatalf("the health of %q is not %s: %v", service, want, err)
			}
			if response.GetStatus() == want {
				break
			}
		}
	}
}
