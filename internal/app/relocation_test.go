package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// moving is a coordinator whose configuration file names a Redis.
type moving struct {
	*running
	t      *testing.T
	file   string
	hangup chan struct{}
}

// startMoving runs a coordinator, and does not wait for Redis.
func startMoving(t *testing.T, redis string) *moving {
	t.Helper()
	m := &moving{t: t, file: filepath.Join(t.TempDir(), "config.yaml"), hangup: make(chan struct{})}
	m.name(redis)
	current, err := config.Open(config.Sources{File: m.file, Flags: map[string]string{
		"grpc.addr": "127.0.0.1:0", "http.addr": "127.0.0.1:0", "amqp.url": embeddedtest.Broker(t),
	}})
	must.Succeed(t, err)
	m.running = startRead(t, current, m.hangup)
	return m
}

// name writes the URL of Redis into the file.
func (m *moving) name(redis string) {
	m.t.Helper()
	must.Succeed(m.t, os.WriteFile(m.file, fmt.Appendf(nil, "redis: {url: %q}\n", redis), 0o600))
}

func (m *moving) says(text string) {
	m.t.Helper()
	servers.Eventually(m.t, 20*time.Second, "it says "+text, func() bool { return strings.Contains(m.log.String(), text) })
}

// TestReloadWhileRedisOpens names another Redis while the coordinator opens the first one, which answers afterwards.
func TestReloadWhileRedisOpens(t *testing.T) {
	t.Parallel()
	first, next := servers.Redis(t), servers.Redis(t)
	slow := wire.TCP(t, first.Addr)
	slow.Hold()
	m := startMoving(t, slow.URL(first.URL()))
	servers.Eventually(t, 20*time.Second, "the first Redis is being opened", func() bool { return slow.Received() > 0 })
	m.name(next.URL())
	m.hangup <- struct{}{}
	m.says("configuration read again")
	slow.Restore()
	m.awaitReady(t)
	servers.Eventually(t, 20*time.Second, "the first Redis is left", func() bool {
		return strings.Count(first.CLI("CLIENT", "LIST"), "id=") == 1 // the command's own
	})
	if !strings.Contains(next.CLI("KEYS", "msghandler*"), "msghandler") {
		t.Error("the coordinator is at no Redis")
	}
}

// A refused move leaves the coordinator where it is, with all keys of before, and is a finding until it is withdrawn.
func TestRefusedMoveChangesNothing(t *testing.T) {
	t.Parallel()
	redis, stranger := servers.Redis(t), servers.Redis(t)
	m := startMoving(t, redis.URL())
	m.awaitReady(t)
	must.Succeed(t, os.WriteFile(m.file, fmt.Appendf(nil,
		"redis: {url: %q}\npolicy: {exchanges: [stock]}\n", stranger.URL()), 0o600))
	m.says("configuration read again and refused")
	if what := m.found(t)["config-refused"]; !strings.Contains(what, "the present Redis still takes writes") {
		t.Errorf("found %q", what)
	}
	m.awaitReady(t)
	if keys := stranger.CLI("KEYS", "*"); strings.Contains(keys, "msghandler") {
		t.Errorf("written to the other Redis: %s", keys)
	}
	m.name(redis.URL())
	servers.Eventually(t, 20*time.Second, "the finding ends", func() bool { return m.found(t)["config-refused"] == "" })
}
