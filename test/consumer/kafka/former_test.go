package kafka_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// A change of Delays leaves messages in the topics of the former ones. No consumer would read these topics any more.
func TestFormerRetryTopicsAreRead(t *testing.T) {
	t.Parallel()
	for name, delays := range map[string][]time.Duration{
		"other delays": {50 * time.Millisecond},
		"no delays":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := cluster(t)
			k.Topic("payments.retry.1h0m0s", nil)
			waiting := withID("1", kgo.RecordHeader{Key: consumer.HeaderRetries, Value: []byte("1")},
				kgo.RecordHeader{Key: consumer.HeaderExchange, Value: []byte("orders")})
			waiting.Topic = "payments.retry.1h0m0s"
			produce(t, k, waiting)
			strangers := []string{"payments.retry.retry.1s", "payments.retry.60m", "payments.retry.soon", "other.retry.1s"}
			for _, topic := range strangers {
				foreign(t, k, topic)
			}
			config, log, b := quick(t, k), &logs.Lines{}, &consumertest.Calls{}
			config.Delays, config.RetryLimit, config.Logger = delays, 0, log.Logger()
			r := start(t, config, b.Handle)
			servers.Eventually(t, time.Minute, "the message is handled", func() bool { return b.Times("1") == 1 })
			r.finish()
			if m := b.All()[0]; m.Retries != 1 || m.Exchange != "orders" {
				t.Errorf("handled as %+v", m)
			}
			if !strings.Contains(log.String(), "payments.retry.1h0m0s") {
				t.Errorf("no line names the topic: %s", log)
			}
			for _, topic := range strangers {
				if b.Times(topic) > 0 {
					t.Errorf("a message of %s was handled", topic)
				}
			}
		})
	}
}

// foreign makes a topic that is none of the group's, with a message whose id is the name of the topic.
func foreign(t *testing.T, k *fakekafka.Cluster, topic string) {
	t.Helper()
	k.Topic(topic, nil)
	produce(t, k, &kgo.Record{
		Topic: topic, Headers: []kgo.RecordHeader{{Key: "msghandler-id", Value: []byte(topic)}},
	})
}
