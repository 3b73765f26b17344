package kafka_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// A consumer that may not create its topics takes no partition from a consumer that works.
func TestConsumerWithoutItsTopicsJoinsNoGroup(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	g, b := watch(k), newBook()
	var tries atomic.Int64
	k.Fake.ControlKey(int16(kmsg.CreateTopics), func(r kmsg.Request) (kmsg.Response, error, bool) {
		k.Fake.KeepControl()
		tries.Add(1)
		response := r.ResponseKind().(*kmsg.CreateTopicsResponse)
		for _, asked := range r.(*kmsg.CreateTopicsRequest).Topics {
			topic := kmsg.NewCreateTopicsResponseTopic()
			topic.Topic, topic.ErrorCode = asked.Topic, kerr.TopicAuthorizationFailed.Code
			response.Topics = append(response.Topics, topic)
		}
		return response, nil, true
	})
	handler := func(_ context.Context, m *consumer.Message) error {
		b.note(m)
		return nil
	}
	able := quick(t, k)
	able.Create = false
	works := start(t, able, handler)
	unable := start(t, quick(t, k), handler)
	servers.Eventually(t, time.Minute, "the second has asked several times", func() bool { return tries.Load() > 3 })
	write(t, k, 0, 3*keys)
	b.await(t, 3*keys)
	if n := g.size(); n != 1 {
		t.Errorf("the group has %d members, want only the one that works", n)
	}
	for _, r := range []*running{works, unable} {
		if err := r.end(); err != nil {
			t.Error(err)
		}
	}
}
