package kafka_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/consumer/permissions"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// acls are permissions such as "Read orders" or "Write payments.retry.*", without the one that is to be missing.
func acls(t *testing.T, without string) (all []kfake.ACL) {
	t.Helper()
	for row, resource := range map[string]kmsg.ACLResourceType{
		"Kafka: topic": kmsg.ACLResourceTypeTopic, "Kafka: group": kmsg.ACLResourceTypeGroup,
	} {
		for _, permission := range permissions.Of(t, row) {
			if permission == without {
				continue
			}
			word, name, _ := strings.Cut(permission, " ")
			operation, err := kmsg.ParseACLOperation(word)
			if err != nil {
				t.Fatal(err)
			}
			a := kfake.ACL{
				Resource: resource, Name: name, Operation: operation, Allow: true, Pattern: kmsg.ACLResourcePatternTypeLiteral,
			}
			if prefix, is := strings.CutSuffix(name, "*"); is {
				a.Name, a.Pattern = prefix, kmsg.ACLResourcePatternTypePrefixed
			}
			all = append(all, a)
		}
	}
	return all
}

// guarded is a cluster with the topic orders and the user "payments", who has some permissions.
func guarded(t *testing.T, allowed []kfake.ACL) *fakekafka.Cluster {
	t.Helper()
	k := fakekafka.Start(t, []kfake.Opt{
		kfake.EnableSASL(), kfake.EnableACLs(), kfake.Superuser("PLAIN", "admin", "a"),
		kfake.User("PLAIN", "payments", "p", allowed...),
	}, kgo.SASL(plain.Auth{User: "admin", Pass: "a"}.AsMechanism()))
	k.Topic("orders", nil)
	return k
}

func TestConsumerNeedsPermissionsOfPage(t *testing.T) {
	t.Parallel()
	k, log, b := guarded(t, acls(t, "")), &logs.Lines{}, &consumertest.Calls{}
	produce(t, k, withID("rejected"), withID("fails"))
	config, o := quick(t, k), &consumertest.Depths{}
	config.URL, config.Logger = k.URL("payments:p@", ""), log.Logger()
	config.Observer, config.DepthInterval = o, 20*time.Millisecond
	r := start(t, config, func(_ context.Context, m *consumer.Message) error {
		switch {
		case m.ID == "rejected":
			return consumer.Reject(errors.New("no JSON"))
		case m.Retries == 0:
			return errors.New("no database")
		}
		b.Note(m)
		return nil
	})
	b.AwaitIDs(t, 1)
	o.AwaitDead(t, "payments.dead", 1)
	r.finish()
	if strings.Contains(log.String(), "AUTHORIZATION") {
		t.Errorf("the user lacks a permission: %s", log)
	}
}

// The user may write to the topic of a former delay, and so sees the topic, but may not read it. The other topics are
// consumed, and one line names the topic and the permission, however often the consumer tries.
func TestForbiddenTopicIsNamedOnce(t *testing.T) {
	t.Parallel()
	allowed := acls(t, "Read payments.retry.*")
	for _, topic := range []string{"payments.retry.200ms", "payments.retry.400ms"} {
		allowed = append(allowed, kfake.ACL{
			Resource: kmsg.ACLResourceTypeTopic, Name: topic, Operation: kmsg.ACLOperationRead, Allow: true,
			Pattern: kmsg.ACLResourcePatternTypeLiteral,
		})
	}
	k, log, b := guarded(t, allowed), &logs.Lines{}, &consumertest.Calls{}
	k.Topic("payments.retry.1h0m0s", nil)
	var refused atomic.Int32
	k.Fake.ControlKey(int16(kmsg.Fetch), func(r kmsg.Request) (kmsg.Response, error, bool) {
		refused.Add(1)
		return nil, nil, false
	})
	config := quick(t, k)
	config.URL, config.Logger = k.URL("payments:p@", ""), log.Logger()
	r := start(t, config, b.Handle)
	for n := range 10 {
		produce(t, k, withID(strconv.Itoa(n)))
		b.AwaitIDs(t, n+1)
	}
	before := refused.Load()
	servers.Eventually(t, time.Minute, "the consumer goes on to try", func() bool { return refused.Load() > before+30 })
	r.finish()
	if n := strings.Count(log.String(), "grant Read"); n != 1 {
		t.Errorf("%d lines name the permission: %s", n, log)
	}
	if !strings.Contains(log.String(), `"topic":"payments.retry.1h0m0s"`) {
		t.Errorf("no line names the topic: %s", log)
	}
}
