package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// brokerWorld is a set-up of two coordinators and two RabbitMQs: the default one, and the broker events of the test's
// own.
type brokerWorld struct {
	*world
	events   *servers.RabbitServer
	settings []string
	producer *plainProducer
	// sent counts the messages, by broker.
	sent map[string]int
	// deliveries are those of the default broker.
	deliveries *deliveries
}

// deliveries counts the copies of messages by id, and whether those after the first were flagged.
type deliveries struct {
	mu        sync.Mutex
	copies    map[string]int
	unflagged []string
}

func (d *deliveries) add(m amqp.Delivery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.copies[m.MessageId]++
	attempt, _ := m.Headers["msghandler-attempt"].(int64)
	if d.copies[m.MessageId] > 1 && attempt <= 1 && !m.Redelivered {
		d.unflagged = append(d.unflagged, m.MessageId)
	}
}

func (d *deliveries) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.copies)
}

const brokerQueue = "of-several-brokers"

func newBrokerWorld(t *testing.T) *brokerWorld {
	w := &brokerWorld{world: newWorld(t), events: servers.PrivateRabbitMQ(t), sent: map[string]int{}}
	w.settings = []string{"MSGHANDLER_BROKERS_EVENTS_URL=" + w.events.URL, "MSGHANDLER_SEND_BACKOFF=1s"}
	w.startCoordinators(2, w.settings...)
	w.producer = newPlainProducer(t, "orders", w.coordinators[0].grpc)
	w.deliveries = consumeFrom(t, w.amqp)
	conn, channel := connectTo(t, w.events.URL)
	declareBrokerQueue(t, channel)
	_ = conn.Close()
	return w
}

func connectTo(t *testing.T, url string) (*amqp.Connection, *amqp.Channel) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	channel, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return conn, channel
}

func declareBrokerQueue(t *testing.T, channel *amqp.Channel) {
	t.Helper()
	if _, err := channel.QueueDeclare(brokerQueue, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}

// consumeFrom counts what arrives at a broker, until the test ends.
func consumeFrom(t *testing.T, url string) *deliveries {
	t.Helper()
	_, channel := connectTo(t, url)
	declareBrokerQueue(t, channel)
	messages, err := channel.Consume(brokerQueue, "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &deliveries{copies: map[string]int{}}
	go func() {
		for m := range messages {
			d.add(m)
		}
	}()
	return d
}

// send sends and submits n messages for a broker, through both coordinators in turn.
func (w *brokerWorld) send(broker string, n int) {
	w.t.Helper()
	const batch = 100
	for left := n; left > 0; left -= batch {
		messages := make([]*pb.Message, min(batch, left))
		ids := make([]string, len(messages))
		for i := range messages {
			ids[i] = fmt.Sprintf("%s-%06d", map[string]string{"": "standard", "events": "events"}[broker], w.sent[broker])
			w.sent[broker]++
			messages[i] = &pb.Message{Id: ids[i], Broker: broker, RoutingKey: brokerQueue, Body: []byte(ids[i])}
		}
		w.producer.sendHalves(time.Minute, messages...)
		response, err := w.producer.api.SubmitAll(w.t.Context(), &pb.SubmitAllRequest{Producer: "orders", Ids: ids})
		if err != nil {
			w.t.Fatal(err)
		}
		for i, o := range response.GetOutcomes() {
			if o.GetCode() != 0 {
				w.t.Fatalf("%s: %v", ids[i], o)
			}
		}
	}
}

// burst is how long n messages for the default broker take until all are delivered.
func (w *brokerWorld) burst(n int) time.Duration {
	w.t.Helper()
	begun := time.Now()
	w.send("", n)
	servers.Eventually(w.t, patience, "the default broker has all of its messages", func() bool {
		return w.deliveries.count() == w.sent[""]
	})
	return time.Since(begun)
}

// metric reads a metric of the first coordinator.
func (w *brokerWorld) metric(series string) string {
	w.t.Helper()
	response, err := http.Get("http://" + w.coordinators[0].http + "/metrics")
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		if value, is := strings.CutPrefix(line, series+" "); is {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// troubled waits until the first coordinator says that the broker events takes no messages, and no other.
func (w *brokerWorld) troubled() {
	w.t.Helper()
	servers.Eventually(w.t, patience, "the broker events is said to take no messages", func() bool {
		return w.metric(`msghandler_broker_up{broker="events"}`) == "0"
	})
	if up := w.metric(`msghandler_broker_up{broker="(default)"}`); up != "1" {
		w.t.Errorf("msghandler_broker_up of the default broker is %q", up)
	}
	out, status := w.run("stats", "--output", "json")
	var stats struct {
		Brokers []struct {
			Name, Kind string
			Ready      bool
			Trouble    string
		} `json:"brokers"`
	}
	if err := json.Unmarshal([]byte(out), &stats); status != 0 || err != nil || len(stats.Brokers) != 2 {
		w.t.Fatalf("stats says (%d, %v): %s", status, err, out)
	}
	if b := stats.Brokers; b[0].Name != "" || !b[0].Ready || b[1].Name != "events" || b[1].Ready || b[1].Trouble == "" ||
		b[1].Kind != "rabbitmq" {
		w.t.Errorf("stats says of the brokers: %+v", b)
	}
}

// waiting demands that the messages of the broker events wait as they came: SENDABLE, without an attempt.
func (w *brokerWorld) waiting(n int) {
	w.t.Helper()
	out, status := w.run("list", "--state", "sendable", "--limit", "100000", "--output", "json")
	var list struct {
		Messages []struct {
			ID, Broker      string
			PublishAttempts int `json:"publish_attempts"`
		} `json:"messages"`
	}
	if err := json.Unmarshal([]byte(out), &list); status != 0 || err != nil {
		w.t.Fatalf("list says (%d, %v): %.500s", status, err, out)
	}
	for _, m := range list.Messages {
		if m.Broker != "events" || m.PublishAttempts != 0 {
			w.t.Errorf("%s is for the broker %q and has used %d attempts", m.ID, m.Broker, m.PublishAttempts)
		}
	}
	if len(list.Messages) < n {
		w.t.Errorf("%d messages wait, want at least %d", len(list.Messages), n)
	}
}

// all waits until the broker events has all of its messages, and demands that each further copy is flagged.
func (w *brokerWorld) all(d *deliveries) {
	w.t.Helper()
	servers.Eventually(w.t, 3*time.Minute, "the broker events has all of its messages", func() bool {
		return d.count() == w.sent["events"]
	})
	w.drained(time.Minute)
	for _, d := range []*deliveries{d, w.deliveries} {
		d.mu.Lock()
		if len(d.unflagged) > 0 {
			w.t.Errorf("%d copies came again and do not say so, such as %s", len(d.unflagged), d.unflagged[0])
		}
		d.mu.Unlock()
	}
	for id := range w.deliveries.copies {
		if !strings.HasPrefix(id, "standard") || w.deliveries.copies[id] != 1 {
			w.t.Errorf("the default broker got %s, %d times", id, w.deliveries.copies[id])
		}
	}
}

// beside demands that a burst takes about as long as without a fault, beside messages for the broker events.
func (w *brokerWorld) beside(what string, quiet time.Duration) {
	w.t.Helper()
	w.send("events", 2000)
	took := w.burst(2000)
	w.t.Logf("%s: 2,000 messages for the default broker took %s, and %s without a fault", what, took, quiet)
	if took > 2*quiet+2*time.Second {
		w.t.Errorf("%s: the messages for the default broker took %s, and %s without a fault", what, took, quiet)
	}
}

// TestBrokersDoNotDisturbEachOther: one of two real RabbitMQs has an alarm, hangs, and is killed, under load.
func TestBrokersDoNotDisturbEachOther(t *testing.T) {
	w := newBrokerWorld(t)
	w.send("events", 1000)
	quiet := slices.Max([]time.Duration{w.burst(2000), w.burst(2000)})

	w.events.Ctl("set_vm_memory_high_watermark", "0.0000001")
	w.send("events", 10) // what makes RabbitMQ say that it is blocked
	w.troubled()
	w.beside("alarm", quiet)
	w.waiting(2000)
	w.events.Ctl("set_vm_memory_high_watermark", "absolute", "1GB")

	w.events.Freeze()
	w.beside("frozen", quiet)
	w.events.Thaw()

	w.send("events", 500)
	w.events.Kill()
	w.troubled()
	w.beside("killed", quiet)
	w.waiting(2000)
	w.coordinators[0].Kill() // with messages of the absent broker parked and in hand
	w.restart(w.coordinators[0], w.settings...)
	env := slices.Concat(w.settings, []string{"MSGHANDLER_REDIS_URL=" + w.redis.URL(), "MSGHANDLER_AMQP_URL=" + w.amqp})
	out, status := programs.Run(t, "msghandler", env, "doctor", "--output", "json")
	if status == 0 || !strings.Contains(out, "broker events") || !strings.Contains(out, "brokers.events.url") {
		t.Errorf("the doctor says (%d): %s", status, out)
	}
	w.events.Start()
	w.all(consumeFrom(t, w.events.URL))
}

// TestUnknownBrokerIsRefused: a coordinator refuses a message for a broker that it does not know, by field and remedy,
// and an SDK's header that repeats the name goes no further.
func TestUnknownBrokerIsRefused(t *testing.T) {
	w := newWorld(t)
	w.startCoordinators(1, "MSGHANDLER_BROKERS_EVENTS_URL="+servers.RabbitMQ(t).URL)
	p := newPlainProducer(t, "orders", w.coordinators[0].grpc)
	_, err := p.api.SendHalfMessage(t.Context(), &pb.SendHalfMessageRequest{
		Producer: "orders", CallbackTarget: p.target,
		Message: &pb.Message{Id: "1", Broker: "nowhere", RoutingKey: "paid"},
	})
	if err == nil || !strings.Contains(err.Error(), `message.broker is "nowhere", which this coordinator does not know`) ||
		!strings.Contains(err.Error(), "InvalidArgument") || !strings.Contains(err.Error(), "name one of events") {
		t.Errorf("the answer is %v", err)
	}
	if out, status := w.run("show", "orders/1"); status != 3 {
		t.Errorf("the message was stored (%d): %s", status, out)
	}
}
