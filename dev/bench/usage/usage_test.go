package usage_test

import (
	"net"
	"os"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/bench/usage"
	"github.com/msghandler/msghandler/test/servers"
)

func TestProcessIsFoundByAddress(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	redis := servers.Redis(t)
	found := usage.Find("this", map[string][]string{
		"mine":    {listener.Addr().String()},
		"redis":   {redis.Addr},
		"foreign": {"192.0.2.1:80"},
		"free":    {"127.0.0.1:1"},
	})
	if got := found["mine"]; len(got) != 1 || got[0] != os.Getpid() {
		t.Errorf("the listener of this process is said to be that of %v, want %d", got, os.Getpid())
	}
	if got := found["redis"]; len(got) != 1 || got[0] != redis.Pid() {
		t.Errorf("redis-server is said to be %v, want %d", got, redis.Pid())
	}
	if len(found["foreign"])+len(found["free"]) != 0 {
		t.Errorf("found %v where no process of this machine listens", found)
	}
}

func TestUsageGrows(t *testing.T) {
	t.Parallel()
	processes := usage.Find("this", nil)
	before := processes.Sample()["this"]
	servers.Eventually(t, 30*time.Second, "the processor time of this process grows", func() bool {
		return processes.Sample()["this"].CPU > before.CPU
	})
	if before.Memory == 0 || before.MostMemory < before.Memory {
		t.Errorf("memory %d of at most %d bytes", before.Memory, before.MostMemory)
	}
	gone := usage.Processes{"gone": {os.Getpid(), -1}}
	if sample := gone.Sample(); len(sample) != 0 {
		t.Errorf("a process that is not there has spent %v", sample)
	}
}
