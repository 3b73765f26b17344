package app_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/nats-io/nats.go/jetstream"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

// holds waits until the metrics have a line with each of these beginnings.
func (r *running) holds(t *testing.T, lines ...string) {
	t.Helper()
	for _, want := range lines {
		servers.Eventually(t, 20*time.Second, "the metrics hold "+want, func() bool {
			return strings.Contains(r.get(t, "/metrics"), "\n"+want)
		})
	}
}

// Each group of metrics follows the real events.
func TestMetricsFollowWhatHappens(t *testing.T) {
	r := start(t, settings(func(c *config.Config) {
		c.Send.Backoff = []time.Duration{time.Millisecond}
		c.Confirm.Timeout = 200 * time.Millisecond
	}), app.Bounds{Schedules: map[string]string{"sweep": "@every 100ms"}})
	r.awaitReady(t)
	p := startOrders(t)
	r.queue(t, "paid")
	client := r.producers(t)
	submit := func(t *testing.T, request *msghandlerv1.SendHalfMessageRequest, wait msghandlerv1.Wait) {
		t.Helper()
		if _, err := client.SendHalfMessage(t.Context(), request); err != nil {
			t.Fatal(err)
		}
		_, err := client.Submit(t.Context(), &msghandlerv1.SubmitRequest{
			Producer: request.GetProducer(), Id: request.GetMessage().GetId(), Wait: wait,
		})
		must.Succeed(t, err)
	}

	t.Run("messages", func(t *testing.T) {
		submit(t, half(p, "1"), msghandlerv1.Wait_WAIT_DONE)
		r.holds(t,
			`msghandler_moves_total{event="committed",fate="stored"} 1`, `msghandler_sendable_seconds_count 1`,
			`msghandler_acked_seconds_count 1`, `msghandler_submit_acked_seconds_count 1`,
			`msghandler_attempts_sum{side="confirm"} 1`, `msghandler_attempts_sum{side="publish"} 1`,
			`msghandler_batch_messages_count{step="confirm"} 1`, `msghandler_batch_messages_count{step="publish"} 1`,
			`msghandler_batch_messages_count{step="create"} 1`, `msghandler_publish_batch_seconds_count 1`,
			`msghandler_half_messages_total{producer="orders"} 1`, `msghandler_pending_messages{producer="orders"} `,
			`msghandler_messages{state="pending"} `, `msghandler_oldest_message_age_seconds{state="sendable"} `)
	})
	t.Run("broker", func(t *testing.T) {
		nowhere := half(p, "2")
		nowhere.Message.Exchange, nowhere.Message.RoutingKey = "nowhere", "paid"
		submit(t, nowhere, msghandlerv1.Wait_WAIT_UNSPECIFIED)
		r.holds(t,
			`msghandler_publishes_total{broker="(default)",exchange="nowhere",outcome="refused"} 2`,
			`msghandler_broker_up{broker="(default)"} 1`,
			`msghandler_moves_total{event="exhausted",fate="stored"} 1`, `msghandler_messages{state="dead"} 1`)
	})
	t.Run("callbacks", func(t *testing.T) {
		r.holds(
			t,
			`msghandler_confirms_total{producer="orders",result="committed"} 2`,
			`msghandler_confirm_calls_total{producer="orders",result="answered"} 2`,
			`msghandler_callback_seconds_count{method="DeleteBusiness"} 2`,
			`msghandler_marker_deletions_total{result="deleted"} 2`,
		)
		away := half(p, "3")
		away.Producer, away.CallbackTarget = "away", nobodyAt(t)
		submit(t, away, msghandlerv1.Wait_WAIT_UNSPECIFIED)
		r.holds(t,
			`msghandler_confirms_total{producer="away",result="unreachable"} `,
			`msghandler_callback_targets_paused{producer="away"} 1`, `msghandler_callback_targets_paused{producer="orders"} 0`)
	})
	t.Run("store", func(t *testing.T) {
		r.holds(
			t,
			`msghandler_store_up 1`,
			`msghandler_script_seconds_count{script="create"} 3`,
			`msghandler_store_regressions_total 0`,
			`msghandler_sweep_messages_total `,
			`msghandler_sweep_repairs_total 0`,
			`msghandler_store_findings{severity="refuse"} 0`,
		)
		servers.Eventually(t, 10*time.Second, "the sweep has seen messages", func() bool {
			return !strings.Contains(r.get(t, "/metrics"), "\nmsghandler_sweep_messages_total 0\n")
		})
	})
	t.Run("process", func(t *testing.T) {
		r.holds(t,
			`msghandler_calls_total{code="OK",method="SendHalfMessage"} 3`, `msghandler_call_seconds_count{method="Submit"} 3`,
			`msghandler_loop_passes_total{loop="confirm"} `, `msghandler_loop_failures{loop="send"} 0`,
			`msghandler_queue_items{queue="confirm"} `, `msghandler_queue_items{queue="send"} 0`,
			`msghandler_queue_items{queue="calls"} 0`, `msghandler_queue_items{queue="markers"} 0`,
			`msghandler_queue_items{queue="publish"} 0`, `msghandler_late_seconds_total `, `msghandler_build_info{`)
	})
}

// JetStream has a message already, as after a lost acknowledgement. The publish is done, and counted.
func TestMetricsCountDuplicatesOfABroker(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	js := natsserver.Stream(t, server.URL, "ORDERS", "orders.>")
	if _, err := js.Publish(t.Context(), "orders.paid", nil, jetstream.WithMsgID("orders/1")); err != nil {
		t.Fatal(err)
	}
	r := start(t, settings(func(c *config.Config) {
		c.Brokers = map[string]config.Broker{"events": {URL: server.URL}}
	}))
	r.awaitReady(t)
	r.holds(t, `msghandler_publish_duplicates_total{broker="events"} 0`)
	client := r.producers(t)
	batch := halves(startOrders(t), "orders", 1, 2) // the ids are 1 and 2
	for _, m := range batch.GetMessages() {
		m.Broker, m.Exchange, m.RoutingKey = "events", "ORDERS", "orders.paid"
	}
	deliver(t, client, batch)
	r.holds(t,
		`msghandler_publish_duplicates_total{broker="events"} 1`,
		`msghandler_publishes_total{broker="events",exchange="ORDERS",outcome="acked"} 2`)
	if strings.Contains(r.get(t, "/metrics"), `msghandler_publish_duplicates_total{broker="(default)"}`) {
		t.Error("RabbitMQ drops no repeats, and has a count of them")
	}
}

// A message with a long confirm_after may be old. A message whose verdict is overdue is trouble, however often its
// producer was asked.
func TestMetricsShowAnOverdueVerdict(t *testing.T) {
	t.Parallel()
	redis := miniredis.RunT(t)
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = "redis://" + redis.Addr() }))
	r.awaitReady(t)
	client := r.producers(t)
	send := func(id string, ago, confirmAfter time.Duration) {
		t.Helper()
		redis.SetTime(time.Now().Add(-ago))
		_, err := client.SendHalfMessage(t.Context(), &msghandlerv1.SendHalfMessageRequest{
			Producer: "away", CallbackTarget: nobodyAt(t), ConfirmAfter: durationpb.New(confirmAfter),
			Message: &msghandlerv1.Message{Id: id, RoutingKey: "paid"},
		})
		must.Succeed(t, err)
	}
	send("patient", 20*time.Hour, 24*time.Hour)
	send("overdue", 4*time.Hour, time.Hour)
	redis.SetTime(time.Time{}) // from now on the listener is ours
	servers.Eventually(t, time.Minute, "three hours are told, or a little more", func() bool {
		return strings.Contains(r.get(t, "/metrics"), "\nmsghandler_undecided_seconds 108")
	})
}

// nobodyAt is an address without a listener.
func nobodyAt(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

var many = flag.Int("messages", 2000, "how many messages the number of series is shown with")

// The number of series depends on the producers, not on their messages.
func TestNoSeriesHasAnID(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t)
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = redis.URL() }))
	r.awaitReady(t)
	p := startOrders(t)
	deliveries := r.queue(t, "paid")
	go func() {
		for range deliveries { // or the broker would wait for its consumer
			continue
		}
	}()
	client := r.producers(t)
	const batch = 100
	send := func(part int) {
		for producer := range 5 {
			deliver(t, client, halves(p, fmt.Sprint("producer-", producer), part*batch, batch))
		}
	}
	settled := func(messages int) {
		r.holds(
			t,
			fmt.Sprintf(`msghandler_publishes_total{broker="(default)",exchange="(default)",outcome="acked"} %v`+"\n",
				float64(messages)),
		)
	}
	send(0)
	send(1)
	settled(2 * 5 * batch)
	// All series exist after a pass of each of the slower loops.
	r.holds(t, `msghandler_script_seconds_count{script="repair"} `, `msghandler_script_seconds_count{script="backlog"} `,
		`msghandler_script_seconds_count{script="list"} `)
	before := r.series(t)
	for part := 2; part*5*batch < *many; part++ {
		send(part)
	}
	settled(max(2, (*many+5*batch-1)/(5*batch)) * 5 * batch)
	after := r.series(t)
	t.Logf("%d series after %d messages of 5 producers, %d after %d", len(before), 2*5*batch, len(after), *many)
	for one := range after {
		if !before[one] && !ofOwnWords(one) {
			t.Errorf("after %d messages there is also %s", *many, one)
		}
	}
}

// series are the coordinator's own series of /metrics.
func (r *running) series(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for line := range strings.Lines(r.get(t, "/metrics")) {
		if strings.HasPrefix(line, "msghandler_") {
			all[line[:strings.LastIndexByte(line, ' ')]] = true
		}
	}
	return all
}

// labelled finds the labels of a series, except the bounds of buckets, which a histogram has from the beginning.
var labelled = regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)

// ownLabels have words of the coordinator as values, which may appear late: on a busy machine a call may wait so long
// that its messages are read (script="get"), or a message is claimed or published again.
var ownLabels = []string{"script", "step", "event", "fate"}

// ownWord matches such a word. The values of the test contain a digit: ids are numbers, and producers have a number in
// their names.
var ownWord = regexp.MustCompile(`^[a-z_]+$`)

// ofOwnWords says whether nothing but words of the coordinator tells a series from others of its name.
func ofOwnWords(series string) bool {
	labels := labelled.FindAllStringSubmatch(series, -1)
	for _, l := range labels {
		name, value := l[1], l[2]
		if name != "le" && (!slices.Contains(ownLabels, name) || !ownWord.MatchString(value)) {
			return false
		}
	}
	return len(labels) > 0
}

// halves are n messages of a producer, numbered on from the first.
func halves(p *orders, producer string, first, n int) *msghandlerv1.SendHalfMessagesRequest {
	half := &msghandlerv1.SendHalfMessagesRequest{Producer: producer, CallbackTarget: p.addr}
	for i := first; i < first+n; i++ {
		half.Messages = append(half.Messages,
			&msghandlerv1.Message{Id: fmt.Sprint(i), RoutingKey: "paid", Body: []byte("order")})
	}
	return half
}

// deliver sends messages and submits them.
func deliver(
	t *testing.T, client msghandlerv1.MessageHandlerServiceClient, half *msghandlerv1.SendHalfMessagesRequest,
) {
	t.Helper()
	submit := &msghandlerv1.SubmitAllRequest{Producer: half.GetProducer(), Wait: msghandlerv1.Wait_WAIT_DONE}
	for _, m := range half.GetMessages() {
		submit.Ids = append(submit.Ids, m.GetId())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := client.SendHalfMessages(ctx, half); err != nil {
		t.Fatal(err)
	}
	if _, err := client.SubmitAll(ctx, submit); err != nil {
		t.Fatal(err)
	}
}
