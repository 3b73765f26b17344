package redis_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

func TestCheckFindsTooOldVersion(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	// Valkey names its own version beside the compatible version of Redis.
	told := regexp.MustCompile(`(?:redis|valkey)_version:([\d.]+)`).FindAllStringSubmatch(server.CLI("INFO", "server"), -1)
	now := told[len(told)-1]
	old := strings.TrimSuffix(now[0], now[1]) + "6.2." + strings.Repeat("1", len(now[1])-4)
	for text, want := range map[string]bool{now[0]: false, old: true} {
		store, err := redisstore.New(t.Context(), redisstore.Config{
			URL: "redis://" + wire.Rewrite(t, server.Addr, now[0], text).Addr + "/0", Instance: "one",
		}.WithDefaults())
		must.Succeed(t, err)
		found, err := store.Check(t.Context())
		must.Succeed(t, err)
		if err := store.Close(); err != nil {
			t.Error(err)
		}
		isOld := func(f redisstore.Finding) bool { return f.Name == "redis-old" && f.Severity == redisstore.Warning }
		if slices.ContainsFunc(found, isOld) != want || len(found) > 1 {
			t.Errorf("about %s the check finds %+v", text, found)
		}
	}
}
