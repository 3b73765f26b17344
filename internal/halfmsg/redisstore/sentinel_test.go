package redisstore_test

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/halfmsg/redisstore"
	"github.com/msghandler/msghandler/test/servers"
)

// sentinel starts a Sentinel that watches one master under the name "main".
func sentinel(t *testing.T, master *servers.RedisServer) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr = listener.Addr().String()
	_ = listener.Close()
	_, port, _ := strings.Cut(addr, ":")
	_, masterPort, _ := strings.Cut(master.Addr, ":")
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("port %s\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 %s 1\n", port, masterPort)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(servers.Tool(t, "redis-server"), file, "--sentinel")
	cmd.Dir = filepath.Dir(file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	servers.Eventually(t, 20*time.Second, "the Sentinel listens", func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	return addr
}

func TestBySentinel(t *testing.T) {
	t.Parallel()
	master := servers.Redis(t)
	// The second of them does not exist.
	store := open(t, redisstore.Config{URL: "redis://" + sentinel(t, master) + ",127.0.0.1:1/0?master=main"})
	create(t, store, half("1"))
	claims := submit(t, store, half("1").Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	settle(t, store, halfmsg.EventAcked, 0, claims...)
	if found, err := store.Check(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("found %v, %v", found, err)
	}
	sweep(t, store)
	if keys := master.CLI("keys", "*:orders:m:1"); !strings.Contains(keys, "orders:m:1") {
		t.Errorf("on the master: %q", keys)
	}
}
