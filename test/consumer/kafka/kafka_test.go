// Package kafka_test tests broker/kafka/kafkaconsumer on kfake, with kcat as the foreign writer and reader.
package kafka_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) {
	if url := os.Getenv(child); url != "" {
		fmt.Println(consume(url))
		os.Exit(1)
	}
	goleak.VerifyTestMain(servers.Stopping(m))
}

// quick is a configuration whose patience fits a test.
func quick(t *testing.T, k *fakekafka.Cluster) kafkaconsumer.Config {
	return kafkaconsumer.Config{
		URL: k.URL("", ""), Group: "payments", Topics: []string{"orders"}, Create: true,
		Delays: []time.Duration{200 * time.Millisecond, 400 * time.Millisecond}, RetryLimit: 3,
		Retry: []time.Duration{100 * time.Millisecond}, Concurrency: 4, StopTimeout: 5 * time.Second,
		Logger: slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

func cluster(t *testing.T) *fakekafka.Cluster {
	t.Helper()
	k := fakekafka.Start(t, nil)
	k.Topic("orders", nil)
	return k
}

// keys are enough to reach every partition.
const keys = 31

// write writes records with ids from first on, the key of each in turn.
func write(t *testing.T, k *fakekafka.Cluster, first, count int) {
	t.Helper()
	records := make([]*kgo.Record, count)
	for i := range records {
		id := fmt.Sprint(first + i)
		records[i] = &kgo.Record{
			Topic: "orders", Key: []byte("k" + fmt.Sprint((first+i)%keys)), Value: []byte("body of " + id),
			Headers: []kgo.RecordHeader{
				{Key: "msghandler-id", Value: []byte(id)},
				{Key: "msghandler-producer", Value: []byte("shop")},
				{Key: "msghandler-attempt", Value: []byte("1")},
				{Key: "tenant", Value: []byte("eu")},
			},
		}
	}
	produce(t, k, records...)
}

// refuse lets the cluster answer every request of a kind with an error.
func refuse(k *fakekafka.Cluster, kind kmsg.Key, answer *kerr.Error) *kfake.FaultHandle {
	return k.Fake.Fault(kfake.Fault{Keys: []kmsg.Key{kind}, Err: answer, Count: -1})
}

// produce writes records and waits until the cluster has stored them.
func produce(t *testing.T, k *fakekafka.Cluster, records ...*kgo.Record) {
	t.Helper()
	if err := k.Admin.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// withID is a record of the topic orders with an id and more headers.
func withID(id string, more ...kgo.RecordHeader) *kgo.Record {
	first := kgo.RecordHeader{Key: "msghandler-id", Value: []byte(id)}
	return &kgo.Record{Topic: "orders", Headers: append([]kgo.RecordHeader{first}, more...)}
}

// running is a consumer in the background.
type running struct {
	t     *testing.T
	stop  context.CancelFunc
	group sync.WaitGroup
	err   error
}

func start(t *testing.T, config kafkaconsumer.Config, h consumer.HandlerFunc) *running {
	t.Helper()
	c, err := kafkaconsumer.New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	r := &running{t: t, stop: cancel}
	r.group.Go(func() { r.err = c.Run(ctx, h) })
	t.Cleanup(func() {
		cancel()
		r.group.Wait()
	})
	return r
}

// end stops the consumer and returns the error of Run.
func (r *running) end() error {
	r.stop()
	r.group.Wait()
	return r.err
}

// finish stops the consumer. Run must return no error.
func (r *running) finish() {
	r.t.Helper()
	if err := r.end(); err != nil {
		r.t.Error(err)
	}
}

func TestMessagesAreHandledInOrder(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	write(t, k, 0, 500)
	b := &consumertest.Calls{}
	r := start(t, quick(t, k), b.Handle)
	b.AwaitIDs(t, 500)
	write(t, k, 500, 100)
	b.AwaitIDs(t, 600)
	r.finish()
	last := map[string]int{}
	for _, m := range b.All() {
		var n int
		if _, err := fmt.Sscan(m.ID, &n); err != nil {
			t.Fatal(err)
		}
		if before, is := last[m.RoutingKey]; is && n <= before {
			t.Errorf("key %s: message %d after %d", m.RoutingKey, n, before)
		}
		last[m.RoutingKey] = n
		if m.Producer != "shop" || string(m.Body) != "body of "+m.ID || m.Exchange != "orders" || m.Queue != "orders" ||
			m.Attempt != 1 || m.Headers["tenant"] != "eu" || len(m.Headers) != 1 || m.Consumer != "payments" {
			t.Fatalf("got %+v", m)
		}
	}
	if len(b.All()) != 600 {
		t.Errorf("%d calls for 600 messages", len(b.All()))
	}
}

// A message is not committed while its handler runs: when the consumer is gone by then, another handles the message.
func TestUnfinishedMessageIsRedelivered(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	config := quick(t, k)
	config.StopTimeout = 300 * time.Millisecond
	begun, release := make(chan struct{}, 10), make(chan struct{})
	defer close(release)
	first := start(t, config, func(context.Context, *consumer.Message) error {
		begun <- struct{}{}
		<-release
		return nil
	})
	write(t, k, 0, 1)
	<-begun
	first.stop()
	b := &consumertest.Calls{}
	second := start(t, quick(t, k), b.Handle)
	b.AwaitIDs(t, 1)
	second.finish()
}

// letter is a record as kcat reads it.
type letter struct {
	Key, Payload string
	Ts           int64
	Headers      []string
}

func (l *letter) header(name string) string {
	for pair := range slices.Chunk(l.Headers, 2) {
		if pair[0] == name {
			return pair[1]
		}
	}
	return ""
}

func letters(t *testing.T, k *fakekafka.Cluster, topic string) (all []letter) {
	t.Helper()
	for line := range strings.Lines(k.Kcat("", "-C", "-t", topic, "-e", "-q", "-J")) {
		var l letter
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return all
}

// A failed message waits in the retry topics, for at least its delays, and the others of its partition go on.
func TestFailedMessageIsRetriedAfterDelays(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := &consumertest.Calls{}
	var mu sync.Mutex
	var at []time.Time
	var seen []*consumer.Message
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		if m.ID == "0" {
			mu.Lock()
			at, seen = append(at, time.Now()), append(seen, m)
			mu.Unlock()
			if b.Times("0") < 2 {
				b.Note(m)
				return errors.New("not yet")
			}
		}
		b.Note(m)
		return nil
	})
	write(t, k, 0, 50)
	b.AwaitIDs(t, 50)
	servers.Eventually(t, time.Minute, "the failed message is handled", func() bool { return b.Times("0") == 3 })
	r.finish()
	if len(at) != 3 || at[1].Sub(at[0]) < 200*time.Millisecond || at[2].Sub(at[1]) < 400*time.Millisecond {
		t.Errorf("handled at %v", at)
	}
	last := seen[len(seen)-1]
	if last.Retries != 2 || last.FirstCause != "not yet" || last.Exchange != "orders" || last.RoutingKey != "k0" ||
		last.Queue != "payments.retry.400ms" || string(last.Body) != "body of 0" || last.Headers["tenant"] != "eu" {
		t.Errorf("the last retry is %+v", last)
	}
	for id, n := range b.Counts() {
		if n != 1 && id != "0" {
			t.Errorf("message %s was handled %d times", id, n)
		}
	}
}

// Retention counts from the copy, also where the message is old. The handler still gets the time of the message.
func TestCopiesOfOldMessagesAreNew(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	k.Topic("payments.dead", nil)
	began, due := time.Now(), time.UnixMilli(1_700_000_000_123)
	record := &kgo.Record{
		Topic:   "orders",
		Headers: []kgo.RecordHeader{{Key: "msghandler-timestamp", Value: []byte(due.UTC().Format(time.RFC3339Nano))}},
	}
	produce(t, k, record)
	times := make(chan time.Time, 10)
	r := start(t, quick(t, k), func(_ context.Context, m *consumer.Message) error {
		times <- m.Timestamp
		return errors.New("no database")
	})
	servers.Eventually(t, time.Minute, "a dead letter", func() bool { return len(letters(t, k, "payments.dead")) == 1 })
	r.finish()
	close(times)
	for got := range times {
		if !got.Equal(due) {
			t.Errorf("the handler got the time %v", got)
		}
	}
	for _, topic := range []string{"payments.retry.200ms", "payments.retry.400ms", "payments.dead"} {
		for _, l := range letters(t, k, topic) {
			if topic == "payments.dead" && l.header(kafkaconsumer.HeaderRetryAt) != "" {
				t.Errorf("a dead letter has a time for a retry: %+v", l)
			}
			if l.Ts < began.UnixMilli() || l.header("msghandler-timestamp") != due.UTC().Format(time.RFC3339Nano) ||
				l.header(consumer.HeaderFirstCause) != "no database" || l.header(consumer.HeaderFirstFailedAt) == "" {
				t.Errorf("%s has %+v", topic, l)
			}
		}
	}
}

// A message is not done before its copy is safe: it stays while the dead-letter topic is missing.
func TestMissingDeadTopicKeepsTheMessage(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	config := quick(t, k)
	config.Create, config.Delays, config.RetryLimit = false, nil, 0
	b := &consumertest.Calls{}
	r := start(t, config, func(_ context.Context, m *consumer.Message) error {
		b.Note(m)
		return consumer.Reject(errors.New("no JSON"))
	})
	write(t, k, 0, 1)
	servers.Eventually(t, time.Minute, "the message stays", func() bool { return b.Times("0") > 2 })
	r.finish()
	k.Topic("payments.dead", nil)
	second := start(t, config, func(_ context.Context, m *consumer.Message) error {
		return consumer.Reject(errors.New("no JSON"))
	})
	servers.Eventually(t, time.Minute, "a dead letter", func() bool { return len(letters(t, k, "payments.dead")) == 1 })
	second.finish()
}

// Without Delays a failed message stays, and so do the messages behind it with the same key.
func TestWithoutDelaysTheOrderIsKept(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	config := quick(t, k)
	config.Delays, config.RetryLimit = nil, 0
	b := &consumertest.Calls{}
	r := start(t, config, func(_ context.Context, m *consumer.Message) error {
		if n := b.Note(m); m.ID == "0" && n < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	write(t, k, 0, 3*keys)
	b.AwaitIDs(t, 3*keys)
	servers.Eventually(t, time.Minute, "the failed message is handled", func() bool { return b.Times("0") == 3 })
	r.finish()
	after := false
	for _, m := range b.All() {
		if m.RoutingKey != "k0" {
			continue
		}
		if m.ID != "0" {
			after = true
		} else if after {
			t.Error("a later message with the key was handled before the failed one")
		}
	}
}

// Two consumers share the partitions; when one stops, the other takes over. No message is left out.
func TestConsumersShareThePartitions(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := &consumertest.Calls{}
	var mu sync.Mutex
	by := map[string]int{}
	handler := func(name string) consumer.HandlerFunc {
		return func(_ context.Context, m *consumer.Message) error {
			b.Note(m)
			mu.Lock()
			defer mu.Unlock()
			by[name]++
			return nil
		}
	}
	first := start(t, quick(t, k), handler("first"))
	write(t, k, 0, 100)
	b.AwaitIDs(t, 100)
	second := start(t, quick(t, k), handler("second"))
	wrote := 100
	servers.Eventually(t, time.Minute, "both work", func() bool {
		write(t, k, wrote, 20)
		wrote += 20
		b.AwaitIDs(t, wrote)
		mu.Lock()
		defer mu.Unlock()
		return by["first"] > 0 && by["second"] > 0
	})
	first.finish()
	write(t, k, wrote, 200)
	b.AwaitIDs(t, wrote+200)
	second.finish()
}

// The cluster is killed and restarted under load: every message is handled, some of them again.
func TestClusterRestartLosesNothing(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := &consumertest.Calls{}
	r := start(t, quick(t, k), b.Handle)
	write(t, k, 0, 300)
	servers.Eventually(t, time.Minute, "some are handled", func() bool { return b.IDs() > 50 })
	k.Kill()
	k.Restart()
	write(t, k, 300, 300)
	b.AwaitIDs(t, 600)
	r.finish()
}

// A foreign client writes what the consumer reads: with the headers of a message, and without any.
func TestForeignWritersAreRead(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := &consumertest.Calls{}
	r := start(t, quick(t, k), b.Handle)
	k.Kcat("paid", "-P", "-t", "orders", "-k", "order-7", "-H", "msghandler-id=1001", "-H", "msghandler-producer=shop",
		"-H", "msghandler-attempt=2", "-H", "tenant=eu", "-H", "content-type=text/plain")
	k.Kcat("foreign", "-P", "-t", "orders")
	b.AwaitIDs(t, 2)
	r.finish()
	for _, m := range b.All() {
		switch m.ID {
		case "1001":
			if m.Key() != "shop/1001" || m.Attempt != 2 || m.RoutingKey != "order-7" || string(m.Body) != "paid" ||
				m.ContentType != "text/plain" || m.Headers["tenant"] != "eu" {
				t.Errorf("got %+v", m)
			}
		case "":
			if m.Key() != "" || m.Attempt != 1 || string(m.Body) != "foreign" {
				t.Errorf("got %+v", m)
			}
		default:
			t.Errorf("got %+v", m)
		}
	}
}

// Partitions are paused and resumed many times.
func TestPausedPartitionsLoseNothing(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	const count = 8000
	records := make([]*kgo.Record, count)
	for i := range records {
		records[i] = withID(fmt.Sprint(i))
		records[i].Key, records[i].Value = fmt.Append(nil, i), make([]byte, 1000)
	}
	produce(t, k, records...)
	config := quick(t, k)
	config.Prefetch, config.Concurrency = 10, 1
	b := &consumertest.Calls{}
	r := start(t, config, b.Handle)
	b.AwaitIDs(t, count)
	r.finish()
	if len(b.All()) != count {
		t.Errorf("%d calls for %d messages", len(b.All()), count)
	}
}

func TestBadConfigurationIsRefused(t *testing.T) {
	t.Parallel()
	good := kafkaconsumer.Config{URL: "kafka://h", Group: "g", Topics: []string{"t"}}
	if _, err := kafkaconsumer.New(good); err != nil {
		t.Error(err)
	}
	for want, spoil := range map[string]func(*kafkaconsumer.Config){
		"URL is not a URL":      func(c *kafkaconsumer.Config) { c.URL = "amqp://u:hunter2@h" },
		"Group is missing":      func(c *kafkaconsumer.Config) { c.Group = "" },
		"Topics is empty":       func(c *kafkaconsumer.Config) { c.Topics = nil },
		"whole milliseconds":    func(c *kafkaconsumer.Config) { c.Delays = []time.Duration{time.Microsecond} },
		"counts the retries":    func(c *kafkaconsumer.Config) { c.RetryLimit = 3 },
		"at once":               func(c *kafkaconsumer.Config) { c.Retry = []time.Duration{0} },
		"must be positive":      func(c *kafkaconsumer.Config) { c.Concurrency = -1 },
		"may be negative":       func(c *kafkaconsumer.Config) { c.StopTimeout = -1 },
		`"a/b.dead" is no name`: func(c *kafkaconsumer.Config) { c.Group = "a/b" },
		`"t" has two roles`:     func(c *kafkaconsumer.Config) { c.DeadTopic = "t" },
		`"g.retry.1s" has two roles`: func(c *kafkaconsumer.Config) {
			c.Delays, c.Topics = []time.Duration{time.Second}, []string{"t", "g.retry.1s"}
		},
		`Language: "de"`:      func(c *kafkaconsumer.Config) { c.Language = "de" },
		"read the authoritie": func(c *kafkaconsumer.Config) { c.URL = "kafka://h?tls=true&ca=/no/such/file" },
	} {
		config := good
		spoil(&config)
		_, err := kafkaconsumer.New(config)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter") {
			t.Errorf("%s: %v", want, err)
		}
	}
}
