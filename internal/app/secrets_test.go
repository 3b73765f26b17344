package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// TestRotatedPasswordsNeedNoRestart rotates as docs/run/security.md says: the server first, and then the file.
func TestRotatedPasswordsNeedNoRestart(t *testing.T) {
	t.Parallel()
	server, rabbit := servers.Redis(t), servers.PrivateRabbitMQ(t)
	rabbit.Ctl("add_user", "app", "first")
	rabbit.Ctl("set_permissions", "app", ".*", ".*", ".*")
	admin := redis.NewClient(&redis.Options{Addr: server.Addr})
	t.Cleanup(func() { _ = admin.Close() })
	must.Succeed(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "on", ">first", "~*", "&*", "+@all").Err())
	_, host, _ := strings.Cut(rabbit.URL, "@")
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		must.Succeed(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
		return path
	}
	redisURL := func(password string) string { return "redis://app:" + password + "@" + server.Addr + "/0" }
	amqpURL := func(password string) string { return "amqp://app:" + password + "@" + host }
	r := start(t, settings(func(c *config.Config) {
		c.Redis.URL, c.AMQP.URLs = redisURL("first"), []string{amqpURL("first")}
		c.PrivateFiles = []config.PrivateFile{
			{Key: "redis.url_file", Path: write("redis-url", redisURL("first"))},
			{Key: "amqp.url_file", Path: write("amqp-url", amqpURL("first"))},
		}
	}))
	r.awaitReady(t)
	must.Succeed(t, admin.Do(t.Context(), "ACL", "SETUSER", "app", "resetpass", ">second").Err())
	rabbit.Ctl("change_password", "app", "second")
	write("redis-url", redisURL("second"))
	write("amqp-url", amqpURL("second"))
	must.Succeed(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err())
	rabbit.Ctl("close_all_connections", "the password was rotated")
	servers.Eventually(t, time.Minute, "both files were read again", func() bool {
		return strings.Count(r.log.String(), "a file with a secret has changed") >= 2
	})
	r.awaitReady(t)
	write("redis-url", "no URL")
	must.Succeed(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err())
	servers.Eventually(t, time.Minute, "the unusable file is reported", func() bool {
		must.Succeed(t, admin.Do(t.Context(), "CLIENT", "KILL", "USER", "app").Err())
		return strings.Contains(r.log.String(), "a changed file with a secret is unusable")
	})
	r.awaitReady(t)
}
