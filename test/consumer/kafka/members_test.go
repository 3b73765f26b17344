package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/servers"
)

// A consumer that may not create its topics takes no partition from a consumer that works.
func TestConsumerWithoutTopicsJoinsNoGroup(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	g, b := watch(k), &consumertest.Calls{}
	creations := refuse(k, kmsg.CreateTopics, kerr.TopicAuthorizationFailed)
	able := quick(t, k)
	able.Create = false
	works := start(t, able, b.Handle)
	unable := start(t, quick(t, k), b.Handle)
	servers.Eventually(t, time.Minute, "the second has asked several times", func() bool { return creations.Hits() > 3 })
	write(t, k, 0, 3*keys)
	b.AwaitIDs(t, 3*keys)
	if n := g.size(); n != 1 {
		t.Errorf("the group has %d members, want only the one that works", n)
	}
	for _, r := range []*running{works, unable} {
		r.finish()
	}
}

// A consumer that has lost its partitions reports that none of their messages wait for it.
func TestDepthForgetsLostPartitions(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	write(t, k, 0, 100)
	o := &consumertest.Depths{}
	config := quick(t, k)
	config.Observer, config.DepthInterval, config.StopTimeout = o, 20*time.Millisecond, 300*time.Millisecond
	release := make(chan struct{})
	r := start(t, config, func(context.Context, *consumer.Message) error {
		<-release
		return nil
	})
	o.AwaitWaiting(t, "orders", 100)
	refuse(k, kmsg.JoinGroup, kerr.GroupAuthorizationFailed)
	refuse(k, kmsg.Heartbeat, kerr.UnknownMemberID)
	o.AwaitWaiting(t, "orders", 0)
	close(release)
	r.finish()
}

func TestAbortedTransactionsAreNotHandled(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	writer, err := kgo.NewClient(kgo.SeedBrokers(k.Hosts...), kgo.TransactionalID("foreign"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	for id, end := range map[string]kgo.TransactionEndTry{"aborted": kgo.TryAbort, "committed": kgo.TryCommit} {
		if err := writer.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		record := withID(id)
		record.Key = []byte("k")
		if err := writer.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := writer.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	write(t, k, 0, keys) // behind the transactions in their partition
	b := &consumertest.Calls{}
	r := start(t, quick(t, k), b.Handle)
	b.AwaitIDs(t, 1+keys)
	r.finish()
	if b.Times("committed") != 1 || b.Times("aborted") != 0 {
		t.Errorf("the committed message was handled %d times, the aborted message %d times",
			b.Times("committed"), b.Times("aborted"))
	}
}

// A cluster that takes no offset shows in the log while the consumer runs, and not at its end only.
func TestRefusedCommitsAreLogged(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	refuse(k, kmsg.OffsetCommit, kerr.TopicAuthorizationFailed)
	config, log := quick(t, k), &logs.Lines{}
	config.Logger = log.Logger()
	r := start(t, config, func(context.Context, *consumer.Message) error { return nil })
	write(t, k, 0, 1)
	servers.Eventually(t, time.Minute, "a line about the commit", func() bool {
		return strings.Contains(log.String(), "offsets not committed, trying again")
	})
	r.finish()
	if !strings.Contains(log.String(), "TOPIC_AUTHORIZATION_FAILED") {
		t.Errorf("no line has the cause: %s", log)
	}
}

// A consumer whose cluster is away from the beginning says so, and consumes when the cluster is there.
func TestClusterThatIsAwayIsLogged(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	write(t, k, 0, 1)
	restore := k.Cut()
	defer restore()
	config, log, b := quick(t, k), &logs.Lines{}, &consumertest.Calls{}
	config.Create, config.Logger = false, log.Logger()
	r := start(t, config, b.Handle)
	servers.Eventually(t, time.Minute, "a line about the cluster", func() bool {
		return strings.Contains(log.String(), "not consuming, trying again")
	})
	restore()
	b.AwaitIDs(t, 1)
	r.finish()
}
