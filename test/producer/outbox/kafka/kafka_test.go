// Package kafka_test tests broker/kafka/kafkaoutbox on kfake, with kcat as the reader.
package kafka_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
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

// A broker that hangs keeps its partitions until its requests time out. That must not take longer than the choice of
// another leader.
func TestRequestsTimeOutSoon(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	var longest atomic.Int32
	k.Fake.Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.Produce}, Observe: true, Count: -1,
		When: func(request kmsg.Request) bool {
			produce, _ := request.(*kmsg.ProduceRequest)
			longest.Store(max(longest.Load(), produce.TimeoutMillis))
			return true
		},
	})
	if got := sender(t, k).Send(t.Context(), batch(1, "paid")); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got)
	}
	if within := time.Duration(longest.Load()) * time.Millisecond; within == 0 || within > 5*time.Second {
		t.Errorf("a broker may take %v for a request", within)
	}
}

// A cluster that is away or blocked uses up no attempt, and the sender goes on when it is back.
func TestOutageUsesNoAttempt(t *testing.T) {
	t.Parallel()
	k := cluster(t, "paid")
	s := sender(t, k)
	unreached := func(what string) {
		t.Helper()
		for i, r := range s.Send(t.Context(), batch(20, "paid")) {
			if r.Fate != outbox.Early && r.Fate != outbox.Unreached || r.Err == nil {
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
	unreached("away")
	restore()
	sent("back")
	fault := k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.NotEnoughReplicas, Count: -1})
	unreached("without replicas")
	fault.Remove()
	sent("with replicas")
	k.Kill()
	unreached("killed")
	k.Restart()
	sent("restarted")
}
