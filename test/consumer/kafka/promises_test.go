package kafka_test

import (
	"cmp"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/fakekafka"
)

func TestConsumerPromises(t *testing.T) {
	t.Parallel()
	consumertest.Run(t, func(t *testing.T) consumertest.Broker { return &fixture{t: t, k: cluster(t)} })
}

// fixture is a cluster as consumertest.Broker. All messages have one key: a partition keeps their order.
type fixture struct {
	t      *testing.T
	k      *fakekafka.Cluster
	buried int
}

func (f *fixture) Run(o consumertest.Options, h consumer.HandlerFunc) (stop func() error) {
	f.t.Helper()
	config := quick(f.t, f.k)
	config.Delays, config.RetryLimit = []time.Duration{20 * time.Millisecond, 40 * time.Millisecond}, consumertest.Retries
	config.Retry, config.Concurrency = []time.Duration{10 * time.Millisecond}, o.Concurrency
	config.Dedup, config.Observer, config.Language = o.Dedup, o.Observer, o.Language
	config.Prefetch, config.DepthInterval = o.Prefetch, 20*time.Millisecond
	config.StopTimeout = cmp.Or(o.StopTimeout, config.StopTimeout)
	config.Logger = cmp.Or(o.Logger, config.Logger)
	return sync.OnceValue(start(f.t, config, h).end)
}

func (f *fixture) Publish(ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		produce(f.t, f.k, f.record("orders", "key", "body of "+id, map[string]string{
			"msghandler-id": id, "msghandler-producer": "shop", "msghandler-attempt": "2", "tenant": "eu",
			"content-type": "text/plain", "msghandler-timestamp": "2023-11-14T22:13:20Z",
		}))
	}
}

func (f *fixture) record(topic, key, body string, headers map[string]string) *kgo.Record {
	record := &kgo.Record{Topic: topic, Key: []byte(key), Value: []byte(body)}
	for name, value := range headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return record
}

func (f *fixture) Origin() (queue, exchange, routingKey string) { return "orders", "orders", "key" }

func (f *fixture) DeadLetters() *consumer.DeadLetters { f.t.Helper(); return deadLetters(f.t, f.k) }

func (f *fixture) Bury(id string, headers map[string]string) {
	f.t.Helper()
	if f.buried == 0 {
		f.k.Topic("payments.dead", nil)
	}
	all := map[string]string{
		"msghandler-id": id, "msghandler-producer": "shop", "msghandler-attempt": "1",
		consumer.HeaderQueue: "orders", consumer.HeaderExchange: "orders", consumer.HeaderDeadReason: "no JSON",
	}
	maps.Copy(all, headers)
	letter := f.record("payments.dead", cmp.Or(headers[consumer.HeaderRoutingKey], "key"), "body of "+id, all)
	f.buried++
	letter.Timestamp = time.UnixMilli(consumertest.PublishedAt*1000 + int64(f.buried))
	produce(f.t, f.k, letter)
}
