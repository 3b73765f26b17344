package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// makeStream makes a stream with the subjects orders.> and returns how many messages it has.
func makeStream(t *testing.T, url string) (count func() int) {
	t.Helper()
	js := natsserver.Stream(t, url, "ORDERS", "orders.>")
	return func() int {
		stream, err := js.Stream(t.Context(), "ORDERS")
		if err != nil {
			return -1
		}
		info, err := stream.Info(t.Context())
		if err != nil {
			return -1
		}
		return int(info.State.Msgs)
	}
}

// toNATS sends and submits n messages for the broker stream.
func toNATS(p *plainProducer, from, n int, subject string) (ids []string) {
	p.t.Helper()
	var messages []*pb.Message
	for i := range n {
		id := fmt.Sprintf("stream-%06d", from+i)
		ids = append(ids, id)
		messages = append(messages, &pb.Message{
			Id: id, Broker: "stream", Exchange: "ORDERS", RoutingKey: subject, Body: []byte(id),
		})
	}
	p.sendHalves(time.Minute, messages...)
	if _, err := p.api.SubmitAll(p.t.Context(), &pb.SubmitAllRequest{Producer: p.name, Ids: ids}); err != nil {
		p.t.Fatal(err)
	}
	return ids
}

// TestCoordinatorServesRabbitMQAndNATS: the built coordinator publishes to both; nats-server is killed, and RabbitMQ
// gets its messages meanwhile; a subject that no stream takes makes its messages DEAD.
func TestCoordinatorServesRabbitMQAndNATS(t *testing.T) {
	server := servers.NATS(t)
	count := makeStream(t, server.URL)
	w := &brokerWorld{world: newWorld(t), sent: map[string]int{}}
	w.startCoordinators(1, "MSGHANDLER_BROKERS_STREAM_URL="+server.URL, "MSGHANDLER_SEND_BACKOFF=100ms,200ms")
	w.producer = newPlainProducer(t, "orders", w.coordinators[0].grpc)
	w.deliveries = consumeFrom(t, w.amqp)

	toNATS(w.producer, 0, 500, "orders.paid")
	w.burst(500)
	servers.Eventually(t, patience, "the stream has its messages", func() bool { return count() == 500 })

	server.Kill()
	servers.Eventually(t, patience, "the broker stream is said to take no messages", func() bool {
		return w.metric(`msghandler_broker_up{broker="stream"}`) == "0"
	})
	toNATS(w.producer, 500, 300, "orders.paid")
	t.Logf("while nats-server is away, 500 messages for RabbitMQ take %s", w.burst(500))
	out, _ := w.run("stats", "--output", "json")
	if !strings.Contains(out, `"kind": "nats"`) {
		t.Errorf("stats says %s", out)
	}
	server.Start()
	servers.Eventually(t, patience, "the stream has all of its messages", func() bool { return count() == 800 })
	w.drained(time.Minute)

	id := toNATS(w.producer, 800, 1, "nowhere")[0]
	if state := w.producer.submit(id, pb.Wait_WAIT_DONE); state != pb.State_STATE_DEAD {
		t.Errorf("a message for a subject without a stream is %v", state)
	}
}
