// Package kafka_test tests broker/kafka/kafkaoutbox on kfake, with kcat as the reader.
package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/broker/kafka/kafkaoutbox"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

func sender(t *testing.T, k *fakekafka.Cluster) *kafkaoutbox.Sender {
	t.Helper()
	s, err := kafkaoutbox.New(kafkaoutbox.Config{URL: k.URL("", ""), Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func cluster(t *testing.T, topics ...string) *fakekafka.Cluster {
	t.Helper()
	k := fakekafka.Start(t, nil)
	for _, topic := range topics {
		k.Topic(topic, nil)
	}
	return k
}

func queued(id, topic string) sqlmarker.Queued {
	return sqlmarker.Queued{Claims: 1, Message: producer.Message{
		ID: id, Exchange: topic, RoutingKey: "k", Body: []byte("paid " + id), ContentType: "text/plain",
		Headers: map[string]string{"trace": "t1"},
	}}
}

func batch(n int, topic string) []sqlmarker.Queued {
	all := make([]sqlmarker.Queued, n)
	for i := range all {
		all[i] = queued(fmt.Sprint(i), topic)
	}
	return all
}

func fates(results []outbox.Result) []outbox.Fate {
	all := make([]outbox.Fate, len(results))
	for i, r := range results {
		all[i] = r.Fate
	}
	return all
}

// found is a record as kcat reads it.
type found struct {
	Key, Payload string
	Ts           int64
	Headers      []string
}

func (f *found) header(name string) string {
	for pair := range slices.Chunk(f.Headers, 2) {
		if pair[0] == name {
			return pair[1]
		}
	}
	return ""
}

func read(t *testing.T, k *fakekafka.Cluster, topic string) []found {
	t.Helper()
	var all []found
	for line := range strings.Lines(k.Kcat("", "-C", "-t", topic, "-e", "-q", "-J")) {
		var f found
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

func TestMessageArrivesAsEnqueued(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	again := queued("1001", "paid")
	again.Claims = 3
	if got := sender(t, k).Send(t.Context(), []sqlmarker.Queued{again}); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got)
	}
	all := read(t, k, "paid")
	if len(all) != 1 {
		t.Fatalf("%d records", len(all))
	}
	f := all[0]
	if f.Key != "k" || f.Payload != "paid 1001" || time.Since(time.UnixMilli(f.Ts)).Abs() > time.Minute {
		t.Errorf("%+v", f)
	}
	for name, want := range map[string]string{
		"msghandler-id": "1001", "msghandler-producer": "orders", "msghandler-attempt": "3", "content-type": "text/plain",
		"trace": "t1",
	} {
		if f.header(name) != want {
			t.Errorf("header %s is %q, want %q", name, f.header(name), want)
		}
	}
}

func TestOnlyUnknownTopicsAreRefused(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	messages := batch(200, "paid")
	for i := range messages {
		if i%2 == 1 {
			messages[i].Message.Exchange = []string{"nobody-s", "no topic", ""}[i%3]
		}
	}
	for i, fate := range fates(sender(t, k).Send(t.Context(), messages)) {
		if want := []outbox.Fate{outbox.Sent, outbox.Refused}[i%2]; fate != want {
			t.Errorf("message %d is %v, want %v", i, fate, want)
		}
	}
	if n := len(read(t, k, "paid")); n != 100 {
		t.Errorf("%d records", n)
	}
}

// A topic that is deleted and made again has another id, and no record. The sender goes on with the new topic.
func TestTopicMadeAgainTakesMessages(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	s := sender(t, k)
	if got := s.Send(t.Context(), batch(10, "paid")); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got[0])
	}
	if err := k.Fake.DeleteTopic("paid"); err != nil {
		t.Fatal(err)
	}
	if got := s.Send(t.Context(), batch(1, "paid")); got[0].Fate != outbox.Refused {
		t.Errorf("without the topic: %+v", got[0])
	}
	k.Topic("paid", nil)
	for i := range 3 {
		for _, result := range s.Send(t.Context(), batch(10, "paid")) {
			if result.Fate != outbox.Sent {
				t.Fatalf("batch %d after the topic was made again: %+v", i, result)
			}
		}
	}
	if n := len(read(t, k, "paid")); n != 30 {
		t.Errorf("%d records of 30", n)
	}
}

// The cluster refuses a whole batch of records because of one. The others are written again, flagged.
func TestTooLargeMessageDelaysNoOther(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	k.Topic("small", map[string]string{"max.message.bytes": "20000"})
	messages := batch(50, "small")
	large := []byte{}
	for i := range 12_000 {
		large = fmt.Appendf(large, "%x", i*7919) // snappy finds little to compress
	}
	messages[20].Message.Body = large
	results := sender(t, k).Send(t.Context(), messages)
	for i, fate := range fates(results) {
		if want := []outbox.Fate{outbox.Sent, outbox.Refused}[min(1, max(0, 1-abs(i-20)))]; fate != want {
			t.Errorf("message %d: %+v", i, results[i])
		}
	}
	ids := map[string]int{}
	for _, f := range read(t, k, "small") {
		ids[f.header("msghandler-id")]++
	}
	if len(ids) != 49 || ids["20"] > 0 {
		t.Errorf("arrived: %v", ids)
	}
}

func abs(n int) int { return max(n, -n) }

func TestDelayIsKept(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	later := queued("later", "paid")
	later.Message.Delay, later.Age = time.Hour, time.Minute
	late := queued("late", "paid")
	late.Message.Delay, late.Age = time.Hour, 3*time.Hour
	begun := time.Now()
	results := sender(t, k).Send(t.Context(), []sqlmarker.Queued{later, late})
	if results[0].Fate != outbox.Early || results[0].In != 59*time.Minute || results[1].Fate != outbox.Sent {
		t.Errorf("%+v", results)
	}
	record := read(t, k, "paid")[0]
	due, err := time.Parse(time.RFC3339, record.header("msghandler-timestamp"))
	if off := due.Sub(begun.Add(-2 * time.Hour)); err != nil || off < 0 || off > time.Minute {
		t.Errorf("the message was due at %v, %v", due, err)
	}
	if record.Ts < begun.UnixMilli() {
		t.Errorf("the record has the time %v, before its publishing", time.UnixMilli(record.Ts))
	}
}

func TestUnreadableMessageIsRefused(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	bad := queued("bad", "paid")
	bad.Unreadable = errors.New("no JSON")
	got := fates(sender(t, k).Send(t.Context(), []sqlmarker.Queued{bad, queued("1", "paid")}))
	if want := []outbox.Fate{outbox.Refused, outbox.Sent}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A cluster that is away or blocked uses up no attempt, and the sender goes on when it is back.
func TestOutageUsesNoAttempt(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	s := sender(t, k)
	unsent := func(what string) {
		t.Helper()
		for i, r := range s.Send(t.Context(), batch(20, "paid")) {
			if r.Fate != outbox.Unreached || !r.Unsent || r.Err == nil {
				t.Fatalf("%s: message %d is %+v", what, i, r)
			}
		}
	}
	sent := func(what string) {
		t.Helper()
		servers.Eventually(t, time.Minute, what+": messages are sent", func() bool {
			return !slices.ContainsFunc(s.Send(t.Context(), batch(20, "paid")), func(r outbox.Result) bool {
				return r.Fate != outbox.Sent
			})
		})
	}
	restore := k.Cut()
	unsent("away")
	restore()
	sent("back")
	fault := k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	unsent("without replicas")
	fault.Remove()
	sent("with replicas")
	k.Kill()
	unsent("killed")
	k.Restart()
	sent("restarted")
}

// A refused batch of records fails others that a broker may have stored. So a message that is written a second time,
// and does not arrive, is not unsent.
func TestSecondWriteForgetsNoFirstCopy(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	s := sender(t, k)
	if got := fates(s.Send(t.Context(), batch(1, "paid"))); got[0] != outbox.Sent {
		t.Fatal(got)
	}
	defer k.Fake.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.MessageTooLarge, Count: 1},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1},
	).Remove()
	if r := s.Send(t.Context(), batch(1, "paid"))[0]; r.Fate != outbox.Unreached || r.Unsent {
		t.Errorf("the message is %+v", r)
	}
}

// A message without an answer may be stored, so its claim counts.
func TestSilentClusterLeavesMessagesUnreached(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	s := sender(t, k)
	if got := fates(s.Send(t.Context(), batch(1, "paid"))); got[0] != outbox.Sent {
		t.Fatal(got)
	}
	fault := k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: -1})
	defer fault.Remove()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	began := time.Now()
	for i, r := range s.Send(ctx, batch(20, "paid")) {
		if r.Fate != outbox.Unreached || r.Unsent || r.Err == nil {
			t.Errorf("message %d is %+v", i, r)
		}
	}
	if took := time.Since(began); took > 4*time.Second {
		t.Errorf("Send took %v with 2 s of time", took)
	}
}

func TestBadConfigurationHidesTheURL(t *testing.T) {
	t.Parallel()
	for _, config := range []kafkaoutbox.Config{
		{URL: "kafka://u:hunter/2@h", Producer: "p"},
		{URL: "amqp://u:hunter2@h", Producer: "p"},
		{URL: "kafka://h"},
		{},
		{URL: "kafka://h?tls=true&ca=/no/such/file", Producer: "p"},
	} {
		if _, err := kafkaoutbox.New(config); err == nil || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%+v: %v", config, err)
		}
	}
}
