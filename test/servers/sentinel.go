package servers

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// SentinelServer is a private Sentinel that watches one master, under the name "main". Its methods are for the test's
// own goroutine.
type SentinelServer struct {
	// Addr is its host:port.
	Addr string

	t    testing.TB
	port int
}

// CLI runs redis-cli against the Sentinel and returns the output. An error of the command ends the test.
func (s *SentinelServer) CLI(args ...string) string {
	s.t.Helper()
	return redisCLI(s.t, s.port, args...)
}

// URL is redis://HOST:PORT/0?master=main.
func (s *SentinelServer) URL() string {
	return "redis://" + s.Addr + "/0?master=main"
}

// Sentinel starts a Sentinel that decides alone: a master which is silent for a second is replaced by a replica.
// Sentinel returns when the Sentinel knows the given replicas, and their links to the master are up.
func Sentinel(t testing.TB, master *RedisServer, replicas ...*RedisServer) *SentinelServer {
	t.Helper()
	release := chosenRelease(t)
	path := redisTool(t, release, "server")
	port, err := 0, error(nil)
	for range 3 { // Another process may take the port between the choice and the start.
		if port, err = launchSentinel(t, release, path, master.port); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	s := &SentinelServer{Addr: loopback(port), t: t, port: port}
	Eventually(t, redisStartTimeout, "the Sentinel knows the replicas", func() bool {
		known := s.CLI("SENTINEL", "REPLICAS", "main")
		for _, r := range replicas {
			if !strings.Contains(known, r.Addr) {
				return false
			}
		}
		return strings.Count(known, "master-link-status\nok") == len(replicas)
	})
	return s
}

func launchSentinel(t testing.TB, release release, path string, master int) (port int, err error) {
	ports, err := freePorts(1)
	if err != nil {
		return 0, err
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nsentinel monitor main 127.0.0.1 %d 1\n"+
		"sentinel down-after-milliseconds main 1000\n", ports[0], strconv.Quote(dir), master)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return 0, err
	}
	proc := &process{path: path, args: []string{file, "--sentinel"}, release: release, dir: dir}
	if err := startRedis(proc, ports[0]); err != nil {
		return 0, err
	}
	t.Cleanup(func() {
		if err := proc.end(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	return ports[0], nil
}

// Replica starts a private redis-server that copies the data of another server and keeps following the other.
func Replica(t testing.TB, master *RedisServer) *RedisServer {
	t.Helper()
	// Either of the two may be the master: a replica that asks for a copy gets the copy at once.
	master.CLI("CONFIG", "SET", "repl-diskless-sync-delay", "0")
	replica := Redis(t, "--repl-diskless-sync-delay", "0")
	replica.Follow(master)
	return replica
}

// Follow makes the server a replica of another server and returns when the replica has all data.
func (r *RedisServer) Follow(master *RedisServer) {
	r.t.Helper()
	r.CLI("REPLICAOF", "127.0.0.1", strconv.Itoa(master.port))
	Eventually(r.t, redisStartTimeout, "the replica is in step", func() bool {
		return strings.Contains(r.CLI("INFO", "replication"), "master_link_status:up")
	})
}
