package kafka_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/consumertest"
	"github.com/msghandler/msghandler/test/fakekafka"
	"github.com/msghandler/msghandler/test/servers"
)

// group is what a cluster sees of the group "payments".
type group struct {
	mu sync.Mutex
	// members are in the order of their first requests with a member id.
	members []string
	beats   map[string]int
}

func watch(k *fakekafka.Cluster) *group {
	g := &group{beats: map[string]int{}}
	see := func(name, member string, beats int) {
		g.mu.Lock()
		defer g.mu.Unlock()
		if name != "payments" || member == "" {
			return
		}
		if _, known := g.beats[member]; !known {
			g.members = append(g.members, member)
		}
		g.beats[member] += beats
	}
	k.Fake.ControlKey(int16(kmsg.JoinGroup), func(r kmsg.Request) (kmsg.Response, error, bool) {
		join := r.(*kmsg.JoinGroupRequest)
		see(join.Group, join.MemberID, 0)
		return nil, nil, false
	})
	k.Fake.ControlKey(int16(kmsg.Heartbeat), func(r kmsg.Request) (kmsg.Response, error, bool) {
		beat := r.(*kmsg.HeartbeatRequest)
		see(beat.Group, beat.MemberID, 1)
		return nil, nil, false
	})
	return g
}

func (g *group) size() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.members)
}

// beatsOf is how many heartbeats the member with a number has sent.
func (g *group) beatsOf(number int) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.beats[g.members[number]]
}

// A consumer joins while another stops. The one that stops gives no partition away before its handler has ended and
// its offsets are committed.
func TestRebalanceDuringStopWaitsForHandlers(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	write(t, k, 0, 3*keys)
	g, b := watch(k), &consumertest.Calls{}
	config := quick(t, k)
	config.StopTimeout = time.Minute
	begun, release := make(chan struct{}, 4), make(chan struct{})
	first := start(t, config, func(_ context.Context, m *consumer.Message) error {
		b.Note(m)
		begun <- struct{}{}
		<-release
		return nil
	})
	for range 4 {
		<-begun // the handler of each partition
	}
	first.stop()
	others := &consumertest.Calls{}
	second := start(t, config, func(_ context.Context, m *consumer.Message) error {
		b.Note(m)
		others.Note(m)
		return nil
	})
	servers.Eventually(t, time.Minute, "the second joins", func() bool { return g.size() == 2 })
	before := g.beatsOf(0)
	servers.Eventually(t, time.Minute, "the first has learned of the second", func() bool {
		return g.beatsOf(0) >= before+3 || others.IDs() > 0
	})
	if n := others.IDs(); n > 0 {
		t.Errorf("the second has handled %d messages while the handlers of the first run", n)
	}
	close(release)
	first.finish()
	b.AwaitIDs(t, 3*keys)
	second.finish()
	b.WantOnce(t)
}

// Partitions move when a consumer joins, and then the consumer that loses them stops. The stop waits for the handlers
// of these partitions, too.
func TestStopDuringRebalanceWaitsForHandlers(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	write(t, k, 0, 3*keys)
	g, b := watch(k), &consumertest.Calls{}
	config := quick(t, k)
	config.StopTimeout = time.Minute
	calls := make(chan chan struct{}, 4)
	var interrupted atomic.Bool
	first := start(t, config, func(ctx context.Context, m *consumer.Message) error {
		b.Note(m)
		release := make(chan struct{})
		calls <- release
		select {
		case <-release:
			return nil
		case <-ctx.Done():
			interrupted.Store(true)
			return ctx.Err()
		}
	})
	running := []chan struct{}{<-calls, <-calls, <-calls, <-calls} // the handler of each partition
	second := start(t, config, b.Handle)
	servers.Eventually(t, time.Minute, "both are members, and partitions move", func() bool {
		return g.size() == 2 && g.beatsOf(1) >= 2
	})
	first.stop()
	for _, release := range running {
		before := g.beatsOf(0)
		servers.Eventually(t, time.Minute, "the first is still a member", func() bool {
			return g.beatsOf(0) > before || interrupted.Load()
		})
		close(release)
	}
	if err := first.end(); err != nil || interrupted.Load() {
		t.Errorf("the stop has not waited for all handlers: %v", err)
	}
	b.AwaitIDs(t, 3*keys)
	second.finish()
	b.WantOnce(t)
}

// A cluster that is silent holds up neither the commit nor the leaving of the group for long.
func TestSilentClusterHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	b := &consumertest.Calls{}
	r := start(t, quick(t, k), b.Handle)
	write(t, k, 0, 100)
	b.AwaitIDs(t, 100)
	defer k.Hang()()
	r.stop()
	ended := make(chan struct{})
	go func() {
		r.group.Wait()
		close(ended)
	}()
	servers.Eventually(t, 30*time.Second, "Run returns, before the session of the member has timed out", func() bool {
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	if r.err != nil {
		t.Error(r.err)
	}
}

// A stop ends all goroutines, also of a client that has fetched messages which nobody has polled.
func TestStopsLeaveNoGoroutine(t *testing.T) {
	t.Parallel()
	k := cluster(t)
	write(t, k, 0, 1000)
	config := quick(t, k)
	config.Prefetch, config.Delays, config.RetryLimit = 1, nil, 0
	for range 30 {
		begun, release := make(chan struct{}, 4), make(chan struct{})
		r := start(t, config, func(context.Context, *consumer.Message) error {
			begun <- struct{}{}
			<-release
			return nil
		})
		<-begun
		r.stop()
		close(release)
		r.finish()
	}
}
