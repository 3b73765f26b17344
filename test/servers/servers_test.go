package servers_test

import (
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

func TestRedisDataSurvivesAKill(t *testing.T) {
	t.Parallel()
	r := servers.Redis(t, "--appendfsync", "always")
	r.CLI("SET", "a", "1")
	r.Kill()
	if r.Pid() != 0 {
		t.Error("killed, and still has a pid")
	}
	r.Start()
	if got := r.CLI("GET", "a"); got != "1" {
		t.Errorf("GET a = %q", got)
	}
	r.Stop()
	r.Start()
	if got := r.CLI("GET", "a"); got != "1" {
		t.Errorf("GET a after a stop = %q", got)
	}
}

func TestRedisEndsWithItsTest(t *testing.T) {
	t.Parallel()
	var pid int
	t.Run("inner", func(t *testing.T) { pid = servers.Redis(t).Pid() })
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("redis-server %d still runs", pid)
	}
}

func TestFullDiskStopsRedisWrites(t *testing.T) {
	t.Parallel()
	r := servers.Redis(t)
	r.CLI("SET", "a", "1")
	r.FillDisk()
	r.CLI("SET", "a", "2") // the file is written after the answer
	servers.Eventually(t, time.Minute, "Redis reports the failed write", func() bool {
		return strings.Contains(r.CLI("INFO", "persistence"), "aof_last_write_status:err")
	})
	r.FreeDisk()
	servers.Eventually(t, time.Minute, "Redis writes again", func() bool {
		return strings.Contains(r.CLI("INFO", "persistence"), "aof_last_write_status:ok")
	})
	r.Kill()
	r.Start()
	if got := r.CLI("GET", "a"); got != "2" {
		t.Errorf("GET a = %q", got)
	}
}

func TestSentinelPromotesAReplica(t *testing.T) {
	t.Parallel()
	master := servers.Redis(t)
	replica := servers.Replica(t, master)
	servers.Sentinel(t, master, replica)
	master.Kill()
	servers.Eventually(t, time.Minute, "the replica is the master", replica.IsMaster)
	master.Start()
	master.Follow(replica)
}

func TestRedisClusterServesEverySlot(t *testing.T) {
	t.Parallel()
	addresses := servers.RedisCluster(t)
	if len(addresses) != 3 {
		t.Fatalf("addresses: %v", addresses)
	}
}

func TestVhostsAreSeparateAndCloseConnections(t *testing.T) {
	t.Parallel()
	one, two := servers.RabbitMQ(t), servers.RabbitMQ(t)
	if one.URL == two.URL {
		t.Fatalf("twice the same: %s", one.URL)
	}
	conn, err := amqp.Dial(one.URL)
	if err != nil {
		t.Fatal(err)
	}
	closed := conn.NotifyClose(make(chan *amqp.Error, 1))
	one.CloseConnections(1)
	if reason := <-closed; reason == nil || reason.Code != amqp.ConnectionForced {
		t.Errorf("closed with %v", reason)
	}
	if names, err := two.Management().Connections(); len(names) != 0 || err != nil {
		t.Errorf("the other vhost has the connections %v, %v", names, err)
	}
}

// failing records the effects of a function of this package on the calling test.
type failing struct {
	testing.TB
	failed, skipped string
}

func (f *failing) Helper() {}

func (f *failing) Fatal(args ...any)         { f.failed = args[0].(string); panic(f) }
func (f *failing) Fatalf(s string, _ ...any) { f.failed = s; panic(f) }
func (f *failing) Skip(args ...any)          { f.skipped = args[0].(string); panic(f) }

func (f *failing) watch(do func()) {
	defer func() { _ = recover() }()
	do()
}

func TestMissingToolFailsOnlyInCI(t *testing.T) {
	for value, inCI := range map[string]bool{"": false, "true": true} {
		t.Setenv("CI", value)
		f := &failing{}
		f.watch(func() { servers.Tool(f, "no-such-program") })
		if (f.failed != "") != inCI || (f.skipped != "") == inCI {
			t.Errorf("CI=%q: failed %q, skipped %q", value, f.failed, f.skipped)
		}
	}
}

func TestEventuallyFailsAtItsDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // in fake time: the deadline is a minute
		f, begun := &failing{}, time.Now()
		f.watch(func() { servers.Eventually(f, time.Millisecond, "never", func() bool { return false }) })
		if took := time.Since(begun); f.failed == "" || took < time.Minute || took > 2*time.Minute {
			t.Errorf("failed with %q after %v", f.failed, took)
		}
	})
}
