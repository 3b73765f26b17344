package app_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

// reloading is a coordinator with a configuration file, and one producer.
type reloading struct {
	*running
	t      *testing.T
	volume string
	hangup chan struct{}
	client msghandlerv1.MessageHandlerServiceClient
	orders *orders
	sent   int
}

// startReloading lays the file out as Kubernetes does: as a link to a link to a directory that a change replaces.
func startReloading(t *testing.T, redis, rules string) *reloading {
	t.Helper()
	r := &reloading{t: t, volume: t.TempDir(), hangup: make(chan struct{}), orders: startOrders(t)}
	must.Succeed(t, os.Symlink(filepath.Join("..data", "config.yaml"), filepath.Join(r.volume, "config.yaml")))
	r.swap(rules)
	current, err := config.Open(config.Sources{
		File: filepath.Join(r.volume, "config.yaml"),
		Flags: map[string]string{
			"grpc.addr": "127.0.0.1:0", "http.addr": "127.0.0.1:0", "redis.url": redis, "amqp.url": embeddedtest.Broker(t),
			"callbacks.allow": "127.0.0.1:*", "shutdown.grace": "20s",
		},
	})
	must.Succeed(t, err)
	r.running = startRead(t, current, r.hangup)
	r.awaitReady(t)
	r.client = r.producers(t)
	return r
}

// startRead runs a coordinator with a configuration that it can read again, until the test ends.
func startRead(t *testing.T, current *config.Current, hangup <-chan struct{}) *running {
	t.Helper()
	log := &servers.Log{}
	a, err := app.New(t.Context(), current.Config, app.Deps{
		Logger: slog.New(slog.NewTextHandler(log, nil)), Configuration: current, Reload: hangup,
	})
	must.Succeed(t, err)
	r := &running{App: a, log: log, ended: make(chan error, 1)}
	go func() { r.ended <- a.Run(context.Background()) }()
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Errorf("stop: %v", err)
		}
		if t.Failed() {
			t.Log(log)
		}
	})
	return r
}

// swap replaces the content as the kubelet does.
func (r *reloading) swap(content string) {
	r.t.Helper()
	dir := filepath.Join(r.volume, fmt.Sprintf("..%d", time.Now().UnixNano()))
	link := dir + "_link"
	for _, err := range []error{
		os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(content), 0o600),
		os.Symlink(dir, link), os.Rename(link, filepath.Join(r.volume, "..data")),
	} {
		must.Succeed(r.t, err)
	}
}

// send sends a message to an exchange, and returns the code of the answer.
func (r *reloading) send(exchange string) codes.Code {
	r.t.Helper()
	r.sent++
	m := half(r.orders, fmt.Sprint("r", r.sent))
	m.Message.Exchange, m.Message.RoutingKey = exchange, "paid"
	_, err := r.client.SendHalfMessage(r.t.Context(), m)
	return status.Code(err)
}

// says waits for a text in the log and the audit trail, which tell of a change right after it is in use.
func (r *reloading) says(text string) {
	r.t.Helper()
	r.becomes("it says "+text, func() bool { return strings.Contains(r.log.String(), text) })
}

func (r *reloading) becomes(what string, cond func() bool) {
	r.t.Helper()
	servers.Eventually(r.t, 20*time.Second, what, cond)
}

func TestChangedConfigurationIsUsed(t *testing.T) {
	t.Parallel()
	r := startReloading(t, embeddedtest.Redis(t), "policy: {exchanges: [shop]}")
	if a, b := r.send("shop"), r.send("stock"); a != codes.OK || b != codes.PermissionDenied {
		t.Fatalf("shop %s, stock %s", a, b)
	}
	r.swap("policy: {exchanges: [stock]}\ndone: {retention: 1m}")
	r.becomes("the new rule is in use", func() bool { return r.send("stock") == codes.OK })
	if code := r.send("shop"); code != codes.PermissionDenied {
		t.Errorf("the old rule holds too: %s", code)
	}
	r.holds(t, "msghandler_config_reload_failed 0")
	if what := r.found(t)["config-restart"]; !strings.Contains(what, "done.retention") {
		t.Errorf("found %q about the key with a restart", what)
	}
	for _, line := range []string{
		`key=policy.exchanges old=shop new=stock`, `needs a restart`, `key=done.retention old=10m new=1m`,
	} {
		r.says(line)
	}

	r.swap("policy: {exchanges: [")
	r.becomes("the broken file is a finding", func() bool { return r.found(t)["config-refused"] != "" })
	r.holds(t, "msghandler_config_reload_failed 1")
	if code := r.send("stock"); code != codes.OK {
		t.Errorf("after a broken file: %s", code)
	}

	r.swap("policy: {exchanges: [shop]}")
	r.hangup <- struct{}{} // at once, and not when the file is seen
	r.becomes("the corrected file is in use", func() bool { return r.send("shop") == codes.OK })
	for _, line := range []string{
		`action=reload result=done identity=anonymous via=config reason="a change of its file" count=2 names=`,
		`action=reload result=failed`, `action=reload result=done identity=anonymous via=config reason="a signal" count=1`,
		`refusal=policy producer=orders cause="message.exchange`,
	} {
		r.says(line)
	}
	if found := r.found(t); found["config-refused"] != "" || found["config-restart"] != "" {
		t.Errorf("still found: %v", found)
	}
}

// TestReloadNeedsNoRedis changes the rules while Redis is away. The file is used at once, and holds when Redis is back.
func TestReloadNeedsNoRedis(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t)
	between := wire.TCP(t, redis.Addr)
	r := startReloading(t, between.URL(redis.URL()), "policy: {exchanges: [shop]}")
	if code := r.send("shop"); code != codes.OK {
		t.Fatal(code)
	}
	between.Silence()
	r.swap("policy: {exchanges: [stock], max_unfinished_bytes: 1MiB}")
	r.becomes("the new rule is in use", func() bool { return r.send("shop") == codes.PermissionDenied })
	between.Restore()
	r.becomes("the producer sends again", func() bool { return r.send("stock") == codes.OK })
	if code := r.send("shop"); code != codes.PermissionDenied {
		t.Errorf("the old rule is back: %s", code)
	}
}

// TestRolesAreGrantedAnew has a user of the console, whom no key grants a role at first.
func TestRolesAreGrantedAnew(t *testing.T) {
	t.Parallel()
	const proxy = "http: {user_header: X-User, trusted_proxies: [127.0.0.1/32]}\n"
	r := startReloading(t, embeddedtest.Redis(t), proxy)
	overview := func() int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+r.HTTPAddr()+"/", http.NoBody)
		must.Succeed(t, err)
		request.Header.Set("X-User", "ops")
		answer, err := http.DefaultClient.Do(request)
		must.Succeed(t, err)
		defer answer.Body.Close()
		return answer.StatusCode
	}
	if got := overview(); got != http.StatusForbidden {
		t.Fatalf("without a role: %d", got)
	}
	r.swap(proxy + "access: {viewers: [\"proxy:ops\"]}")
	r.becomes("the user is a viewer", func() bool { return overview() == http.StatusOK })
	r.swap("")
	r.becomes("the emptied file grants nothing", func() bool { return overview() == http.StatusForbidden })
}

func TestTargetsAreAllowedAnew(t *testing.T) {
	t.Parallel()
	r := startReloading(t, embeddedtest.Redis(t), "grpc: {reflection: false}")
	if code := r.send("shop"); code != codes.OK {
		t.Fatal(code)
	}
	r.swap("policy: {targets: [\"10.0.0.1:*\"]}")
	r.becomes("the target is forbidden", func() bool { return r.send("shop") == codes.PermissionDenied })
	r.swap("policy: {targets: [\"127.0.0.1:*\"]}")
	r.becomes("the target is allowed", func() bool { return r.send("shop") == codes.OK })
}
