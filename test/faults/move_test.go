package faults

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// Operators move the system to other servers.
var moveRows = []row{
	{
		name: "F51_redis", shows: true, copies: true, leavesMarkers: true, lasting: true, fault: moveRedis,
		world: options{before: nameRedisInFile},
	},
}

// TestPageMovesRedis demands commands of the page; the row F51_redis runs them.
func TestPageMovesRedis(t *testing.T) {
	if commands := moveCommands(t); !strings.Contains(commands, "failover to") {
		t.Errorf("the commands for a move to another Redis have no failover:\n%s", commands)
	}
}

// moveCommands are the commands of the page.
func moveCommands(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/run/upgrade.md")
	must.Succeed(t, err)
	_, section, _ := strings.Cut(string(page), "\n## Move to another Redis\n")
	_, block, _ := strings.Cut(section, "\n```sh test=TestPageMovesRedis\n")
	commands, _, _ := strings.Cut(block, "\n```")
	return commands
}

// nameRedisInFile has the coordinators read where Redis is in a file.
func nameRedisInFile(w *world) {
	w.redisFile = filepath.Join(w.t.TempDir(), "redis-url")
	must.Succeed(w.t, os.WriteFile(w.redisFile, []byte(w.redis.URL()), 0o600))
	w.options.settings = append(w.options.settings, "MSGHANDLER_REDIS_URL=", "MSGHANDLER_REDIS_URL_FILE="+w.redisFile)
}

// moveRedis moves all data to another Redis with the commands of the page. The coordinators follow without a restart.
func moveRedis(ctx context.Context, w *world, _ *rand.Rand) {
	pause(ctx, time.Second)
	commands := moveCommands(w.t)
	next := servers.Redis(w.t)
	addresses := strings.NewReplacer("redis-1:6379", w.redis.Addr, "redis-2:6379", next.Addr,
		"/etc/msghandler/redis-url", w.redisFile)
	w.ledger.Fault("Redis moves to " + next.Addr)
	bash := exec.CommandContext(w.t.Context(), "bash", "-euc", addresses.Replace(commands))
	if out, err := bash.CombinedOutput(); err != nil {
		w.t.Fatalf("the commands of the page: %v\n%s", err, out)
	}
	former := w.redis
	w.redis = next
	for _, c := range w.coordinators {
		servers.Eventually(w.t, time.Minute, "the coordinator has followed", func() bool {
			log, err := os.ReadFile(c.log)
			return err == nil && strings.Contains(string(log), "Redis has moved")
		})
	}
	former.Kill()
	w.ledger.Fault("the former Redis is gone")
}
