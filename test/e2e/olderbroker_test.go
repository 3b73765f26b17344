package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// lastWithoutBrokers is the last version whose messages cannot name a broker; it knows layouts up to 4.
const lastWithoutBrokers = "f8878b9"

// olderBinary builds the coordinator of that version.
func olderBinary(t *testing.T) string {
	t.Helper()
	tree := t.TempDir()
	const build = `git -C ../.. archive "$1" | tar -x -C "$2"; cd "$2"; go build -o older ./cmd/msghandler`
	shell := exec.Command("sh", "-ec", build, "sh", lastWithoutBrokers, tree)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Fatalf("build the version before, which needs the history of the repository: %v\n%s", err, out)
	}
	return filepath.Join(tree, "older")
}

// startOlder adds a coordinator of that version.
func (w *world) startOlder(binary string) *coordinator {
	w.t.Helper()
	addresses := servers.Addresses(w.t, 2)
	c := &coordinator{grpc: addresses[0], http: addresses[1]}
	c.process = startCommand(w.t, "older", w.environment(c), exec.Command(binary, "serve"))
	return c
}

// TestOldCoordinatorsRefuseTheHeader: beside and after coordinators that know no brokers, a message for a named broker
// never reaches the default broker, and is accepted once no such coordinator is left.
func TestOldCoordinatorsRefuseTheHeader(t *testing.T) {
	w := newWorld(t)
	binary := olderBinary(t)
	older := w.startOlder(binary)
	w.ready(older)
	channel := w.channel()
	declareBrokerQueue(t, channel)
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr})
	t.Cleanup(func() { _ = client.Close() })

	p := newPlainProducer(t, "orders", older.grpc)
	half := func(to *plainProducer) error {
		_, err := to.api.SendHalfMessage(t.Context(), &pb.SendHalfMessageRequest{
			Producer: "orders", CallbackTarget: p.target, Message: &pb.Message{
				Id: "1", Broker: "events", RoutingKey: brokerQueue, Headers: map[string]string{"msghandler-broker": "events"},
			},
		})
		return err
	}
	if err := half(p); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "msghandler-broker") {
		t.Errorf("the older version answers %v", err)
	}
	w.oldRefusesRecord(client, older)

	events := servers.RabbitMQ(t).URL
	_, ofEvents := connectTo(t, events)
	declareBrokerQueue(t, ofEvents)
	w.startCoordinators(1, "MSGHANDLER_BROKERS_EVENTS_URL="+events)
	newer := newPlainProducer(t, "orders", w.coordinators[0].grpc)
	if err := half(newer); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "older version") {
		t.Errorf("beside the older version, the newer one answers %v", err)
	}
	env := []string{"MSGHANDLER_SERVER=" + w.coordinators[0].grpc}
	if out, exit := run(t, env, "retry", "orders/crafted"); exit != 0 {
		t.Errorf("retry says (%d): %s", exit, out)
	}
	if got := w.get(ofEvents, brokerQueue); got.MessageId != "crafted" {
		t.Errorf("the broker events got %s", got.MessageId)
	}
	older.stop(30 * time.Second)
	servers.Eventually(t, patience, "the data have layout 5, since no older version is left", func() bool {
		return client.HGet(t.Context(), "msghandler:meta", "layout").Val() == "5"
	})
	client.HSet(t.Context(), "msghandler:meta", "since", 1) // half a minute later
	servers.Eventually(t, patience, "messages may name a broker", func() bool { return half(newer) == nil })
	if state := newer.submit("1", pb.Wait_WAIT_DONE); state != pb.State_STATE_DONE {
		t.Errorf("it is %v", state)
	}
	got := w.get(ofEvents, brokerQueue)
	if _, left := got.Headers["msghandler-broker"]; got.MessageId != "1" || left {
		t.Errorf("the broker events got %+v", got)
	}
	nothingIn(t, channel)
	again := w.startOlder(binary)
	<-again.done
	if !again.hasSaid("layout 5") || again.err == nil {
		t.Errorf("the older version starts on data of layout 5: %v\n%s", again.err, again.tail())
	}
}

// oldRefusesRecord has a running older version claim a record that names a broker, as one that hung during an upgrade
// would: the record is set aside, and published nowhere.
func (w *world) oldRefusesRecord(client *redis.Client, older *coordinator) {
	w.t.Helper()
	const base = "msghandler:{00}:orders:"
	now := time.Now().UnixMilli()
	pipe := client.Pipeline()
	const record = `HALF %d 1e058ec2bfba89e4386b7d60871f06a2 {"broker":"events","exchange":"","routing_key":%q}` + "\nbody"
	pipe.Set(w.t.Context(), base+"m:crafted", fmt.Sprintf(record, now, brokerQueue), 0)
	pipe.HSet(w.t.Context(), base+"verdicts", "crafted", now)
	pipe.ZAdd(w.t.Context(), base+"sendable:created", redis.Z{Score: float64(now), Member: "crafted"})
	pipe.ZAdd(w.t.Context(), base+"sendable", redis.Z{Score: float64(now), Member: "crafted"})
	pipe.SAdd(w.t.Context(), "msghandler:{00}:producers", "orders")
	if _, err := pipe.Exec(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	servers.Eventually(w.t, patience, "the older version sets the record aside", func() bool {
		return client.ZScore(w.t.Context(), base+"dead", "crafted").Err() == nil
	})
	if !older.hasSaid("its first word is neither half nor pack") {
		w.t.Errorf("the older version says\n%s", older.tail())
	}
}

// nothingIn demands that the queue of the default broker is empty.
func nothingIn(t *testing.T, channel *amqp.Channel) {
	t.Helper()
	got, ok, err := channel.Get(brokerQueue, true)
	if err != nil || ok {
		t.Errorf("the default broker has %s, %v", got.MessageId, err)
	}
}
