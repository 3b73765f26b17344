package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// inEachPartition writes a message into each partition, whose number is its id.
func inEachPartition(t *testing.T, k *fakekafka.Cluster) {
	t.Helper()
	var records []*kgo.Record
	for partition := range int32(4) {
		record := withID(fmt.Sprint(partition))
		record.Partition = partition
		records = append(records, record)
	}
	produceTo(t, k, records...)
}

// nearlyDead is a cluster with a message in each partition. One more process that tells nothing makes each of them a
// dead letter.
func nearlyDead(t *testing.T) *fakekafka.Cluster {
	t.Helper()
	k := cluster(t)
	inEachPartition(t, k)
	begin(t, k, 20)
	return k
}

// wantNoLetter fails the test if a message has become a dead letter.
func wantNoLetter(t *testing.T, k *fakekafka.Cluster) {
	t.Helper()
	if dead := letters(t, k, "payments.dead"); len(dead) > 0 {
		t.Errorf("the dead letters are %+v", dead)
	}
}

// Handlers outlast StopTimeout when their partitions move to another consumer. Their process lives.
func TestSlowRebalanceCountsAsNoCrash(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	inEachPartition(t, k)
	config := quick(t, k)
	config.StopTimeout = 100 * time.Millisecond
	began, release := make(chan struct{}, 100), make(chan struct{})
	slow := start(t, config, func(context.Context, *consumer.Message) error {
		began <- struct{}{}
		<-release
		return nil
	})
	for range 4 {
		<-began // the handler of each partition
	}
	counts := make(chan string, 100)
	other := start(t, config, func(_ context.Context, m *consumer.Message) error {
		partition, _ := strconv.Atoi(m.ID)
		_, metadata := begunIn(t, k, int32(partition))
		counts <- metadata
		return nil
	})
	for range 2 { // partitions move
		if metadata := <-counts; metadata != "msghandler-begun:1" {
			t.Errorf("after the first consumer the count is %q", metadata)
		}
	}
	close(release)
	slow.finish()
	other.finish()
}

// The group expels a consumer that it has not heard of for the session timeout. The consumer lives, and comes back.
func TestLostPartitionCountsAsNoCrash(t *testing.T) {
	t.Parallel()
	k := nearlyDead(t)
	config := quick(t, k)
	config.StopTimeout, config.Concurrency = 100*time.Millisecond, 1
	config.Delays, config.RetryLimit = nil, 0 // one group
	consuming := make(chan struct{}, 100)
	config.Consuming = func() { consuming <- struct{}{} }
	began, release := make(chan string, 100), make(chan struct{})
	b := &consumertest.Calls{}
	r := start(t, config, func(_ context.Context, m *consumer.Message) error {
		b.Note(m)
		began <- m.ID
		<-release
		return nil
	})
	<-consuming
	first := <-began
	expel(t, k, "payments")
	<-consuming
	close(release)
	servers.Eventually(t, time.Minute, "the message is handled again", func() bool { return b.Times(first) == 2 })
	b.AwaitIDs(t, 4)
	r.finish()
	wantNoLetter(t, k)
}

// A handler ignores the end of its context, and its consumer stops.
func TestStuckHandlersStopIsNoCrash(t *testing.T) {
	t.Parallel()
	k := nearlyDead(t)
	config := quick(t, k)
	config.StopTimeout = time.Millisecond
	began, release := make(chan struct{}, 4), make(chan struct{})
	defer close(release)
	r := start(t, config, func(context.Context, *consumer.Message) error {
		began <- struct{}{}
		<-release
		return nil
	})
	<-began
	if err := r.end(); err == nil || !strings.Contains(err.Error(), "StopTimeout") {
		t.Errorf("Run: %v", err)
	}
	b := &consumertest.Calls{}
	other := start(t, quick(t, k), b.Handle)
	b.AwaitIDs(t, 4)
	other.finish()
	wantNoLetter(t, k)
}

// The coordinator of the group answers no commit. Retries of the first message wait for its count no longer than 0.2 s.
func TestRetriesWaitForNoCoordinator(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	produce(t, k, withID("1"))
	var answers atomic.Bool
	k.Fake.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (response kmsg.Response, err error, isTaken bool) {
		k.Fake.KeepControl()
		return nil, nil, !answers.Load() // taken, and never answered
	})
	config := quick(t, k)
	config.Delays, config.RetryLimit, config.Retry = nil, 0, []time.Duration{time.Millisecond}
	handled := make(chan time.Time, 1000)
	r := start(t, config, func(context.Context, *consumer.Message) error {
		handled <- time.Now()
		return errors.New("no database")
	})
	shortest, last := time.Hour, <-handled
	for range 4 {
		next := <-handled
		shortest, last = min(shortest, next.Sub(last)), next
	}
	if shortest >= 4*time.Second { // other commits wait 5 s
		t.Errorf("each retry waited for the coordinator, %s at least", shortest)
	}
	answers.Store(true)
	r.finish()
}
