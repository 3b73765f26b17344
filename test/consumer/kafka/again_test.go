package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

func remove(t *testing.T, k *fakekafka.Cluster, topic string) {
	t.Helper()
	if err := k.Fake.DeleteTopic(topic); err != nil {
		t.Fatal(err)
	}
}

// A topic that is deleted and made again has another id, and its offsets begin anew. Each message of the new topic is
// handled, also by a consumer that was away, whose committed offsets are beyond the end.
func TestTopicMadeAgainIsConsumed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		// again deletes the topic and makes it again, beside a running consumer; stop stops the consumer.
		again func(t *testing.T, k *fakekafka.Cluster, stop func())
	}{
		{"at once", func(t *testing.T, k *fakekafka.Cluster, _ func()) {
			remove(t, k, "orders")
			k.Topic("orders", nil)
		}},
		{"later", func(t *testing.T, k *fakekafka.Cluster, _ func()) {
			remove(t, k, "orders")
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := k.Fake.WaitGroupInfo(ctx, "payments", func(group *kfake.GroupInfo) bool {
				return group.NumAssigned() == 0
			}); err != nil {
				t.Fatalf("the group keeps the partitions of a topic that was deleted: %v", err)
			}
			k.Topic("orders", nil)
		}},
		{"without a consumer", func(t *testing.T, k *fakekafka.Cluster, stop func()) {
			stop()
			remove(t, k, "orders")
			k.Topic("orders", nil)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			k := cluster(t)
			b := &consumertest.Calls{}
			r := start(t, quick(t, k), b.Handle)
			write(t, k, 0, 200)
			b.AwaitIDs(t, 200)
			stopped := false
			test.again(t, k, func() {
				stopped = true
				r.finish()
			})
			k.Admin.PurgeTopicsFromClient("orders")
			write(t, k, 200, 50)
			if stopped {
				r = start(t, quick(t, k), b.Handle)
			}
			b.AwaitIDs(t, 250)
			r.finish()
			write(t, k, 250, 10)
			r = start(t, quick(t, k), b.Handle)
			b.AwaitIDs(t, 260)
			r.finish()
			b.WantOnce(t)
		})
	}
}

// The topics for retries and dead letters are deleted, and made again by an operator or, with Create, by the consumer.
// Copies go there, and retries come from there.
func TestCopiesGoToTopicsMadeAgain(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]bool{"by an operator": false, "by the consumer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := cluster(t)
			topics := []string{"payments.retry.200ms", "payments.retry.400ms", "payments.dead"}
			config := quick(t, k)
			config.Create = create
			makeAll := func() {
				for _, topic := range topics {
					if !create {
						k.Topic(topic, nil)
					}
				}
			}
			makeAll()
			b := &consumertest.Calls{}
			r := start(t, config, func(_ context.Context, m *consumer.Message) error {
				b.Note(m)
				return fmt.Errorf("failure of %s", m.ID)
			})
			for round := range 2 {
				write(t, k, round, 1)
				servers.Eventually(t, time.Minute, "a dead letter", func() bool {
					return k.Fake.TopicInfo("payments.dead") != nil && len(letters(t, k, "payments.dead")) == 1
				})
				if round == 0 {
					for _, topic := range topics {
						remove(t, k, topic)
					}
					makeAll()
				}
			}
			r.finish()
			if b.Times("0") != 4 || b.Times("1") < 4 {
				t.Errorf("handled %v", b.Counts())
			}
		})
	}
}
