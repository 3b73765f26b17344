package app_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/dev/embedded"
	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
	"github.com/msghandler/msghandler/test/wire"
)

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	goleak.VerifyTestMain(servers.Stopping(m))
}

func TestMessageIsDeliveredEndToEnd(t *testing.T) {
	r := start(t, settings())
	r.awaitReady(t)
	p := startOrders(t)
	deliveries := r.queue(t, "paid")
	client := r.producers(t)

	if _, err := client.SendHalfMessage(t.Context(), half(p, "1")); err != nil {
		t.Fatal(err)
	}
	answer, err := client.Submit(t.Context(), &msghandlerv1.SubmitRequest{
		Producer: "orders", Id: "1", Wait: msghandlerv1.Wait_WAIT_DONE,
	})
	if err != nil || answer.GetState() != msghandlerv1.State_STATE_DONE {
		t.Fatalf("got %v, %v\n%s", answer.GetState(), err, r.log)
	}
	select {
	case d := <-deliveries:
		if string(d.Body) != "order 1" || d.MessageId != "1" || d.AppId != "orders" ||
			d.Headers["msghandler-attempt"] != int64(1) {
			t.Errorf("got %+v", d)
		}
	case <-time.After(time.Minute):
		t.Fatal("nothing was delivered")
	}
	if asked, deleted := p.counts("1"); asked != 1 || deleted != 1 {
		t.Errorf("asked %d times, told to delete %d times", asked, deleted)
	}
	for _, want := range []string{
		`msghandler_moves_total{event="acked",fate="stored"} 1`, `msghandler_calls_total{code="OK",method="Submit"} 1`,
		`msghandler_publishes_total{broker="(default)",exchange="(default)",outcome="acked"} 1`,
		`msghandler_loop_passes_total{loop="sweep"}`,
	} {
		servers.Eventually(t, 10*time.Second, "the metrics hold "+want, func() bool {
			return strings.Contains(r.get(t, "/metrics"), want)
		})
	}
	if page := r.get(t, "/"); !strings.Contains(page, "sendable") || !strings.Contains(page, r.Instance()) {
		t.Errorf("the page is %s", page)
	}
}

func (r *running) get(t *testing.T, path string) string {
	t.Helper()
	answer, err := http.Get("http://" + r.HTTPAddr() + path)
	must.Succeed(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must.Succeed(t, err)
	return string(body)
}

func TestSilentMessageIsConfirmedByLoop(t *testing.T) {
	r := start(t, settings(func(c *config.Config) { c.Confirm.After = 50 * time.Millisecond }))
	r.awaitReady(t)
	p := startOrders(t)
	deliveries := r.queue(t, "paid")
	client := r.producers(t)
	if _, err := client.SendHalfMessage(t.Context(), half(p, "2")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-deliveries:
	case <-time.After(time.Minute):
		t.Fatalf("nothing was delivered\n%s", r.log)
	}
}

func TestMarkersAreDeletedAsConfigured(t *testing.T) {
	for when, early := range map[string]int{config.BeforePublish: 1, config.AfterAck: 0} {
		t.Run(when, func(t *testing.T) {
			r := start(t, settings(func(c *config.Config) {
				c.DeleteBusiness.When = when
				c.Send.Backoff = []time.Duration{time.Hour}
			}))
			r.awaitReady(t)
			p := startOrders(t)
			conn := dial(t, r.GRPCAddr())
			client := msghandlerv1.NewMessageHandlerServiceClient(conn)
			if _, err := client.SendHalfMessage(t.Context(), half(p, "3")); err != nil {
				t.Fatal(err)
			}
			if _, err := client.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: "orders", Id: "3"}); err != nil {
				t.Fatal(err)
			}
			servers.Eventually(t, 10*time.Second, "the broker returns a message without a queue", func() bool {
				return strings.Contains(r.get(t, "/metrics"), `msghandler_moves_total{event="refused",fate="stored"} 1`)
			})
			if _, deleted := p.counts("3"); deleted != early {
				t.Errorf("told to delete %d times before the broker took the message", deleted)
			}

			deliveries := r.queue(t, "paid")
			if _, err := adminv1.NewAdminServiceClient(conn).RetryMessages(t.Context(), &adminv1.RetryMessagesRequest{
				Selection: &adminv1.MessageSelection{Names: []*adminv1.MessageName{{Producer: "orders", Id: "3"}}},
			}); err != nil {
				t.Fatal(err)
			}
			d := <-deliveries
			if d.Headers["msghandler-attempt"] != int64(2) {
				t.Errorf("the second copy has the number %v", d.Headers["msghandler-attempt"])
			}
			servers.Eventually(t, 10*time.Second, "the marker is deleted once", func() bool {
				_, deleted := p.counts("3")
				return deleted == 1
			})
		})
	}
}

func TestAddressInUseFailsStart(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	defer taken.Close()
	for key, change := range map[string]func(*config.Config){
		"grpc.addr": func(c *config.Config) { c.GRPC.Addr = taken.Addr().String() },
		"http.addr": func(c *config.Config) { c.HTTP.Addr = taken.Addr().String() },
	} {
		_, err := app.New(t.Context(), settings(change), app.Deps{})
		if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), taken.Addr().String()) {
			t.Errorf("%s: got %v", key, err)
		}
	}
}

func TestAForbiddenTargetFailsTheStart(t *testing.T) {
	_, err := app.New(t.Context(), settings(func(c *config.Config) {
		c.Producers["stock"] = config.Producer{Target: "10.0.0.1:9000"}
	}), app.Deps{})
	var wrong app.SettingsError
	if !errors.As(err, &wrong) || !strings.Contains(err.Error(), "stock") ||
		!strings.Contains(err.Error(), "callbacks.allow") {
		t.Errorf("got %v", err)
	}
}

// The caller must see that a late Submit after a rollback is refused, also in a batch, as the SDK sends.
func TestEachMessageOfBatchIsCounted(t *testing.T) {
	r := start(t, settings())
	r.awaitReady(t)
	p := startOrders(t)
	client := r.producers(t)
	if _, err := client.SendHalfMessage(t.Context(), half(p, "1")); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Rollback(t.Context(), &msghandlerv1.RollbackRequest{Producer: "orders", Id: "1"}); err != nil {
		t.Fatal(err)
	}
	many := &msghandlerv1.SubmitAllRequest{Producer: "orders", Ids: []string{"1", "unheard-of"}}
	if _, err := client.SubmitAll(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	metrics := r.get(t, "/metrics")
	for _, want := range []string{
		`msghandler_outcomes_total{code="FailedPrecondition",method="SubmitAll"} 1`,
		`msghandler_outcomes_total{code="NotFound",method="SubmitAll"} 1`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func TestStopMayBeCalledAnyTime(t *testing.T) {
	never, err := app.New(t.Context(), settings(), app.Deps{Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	for range 2 {
		if err := never.Stop(t.Context()); err != nil {
			t.Errorf("stop without run: %v", err)
		}
	}
	if err := never.Run(t.Context()); err == nil {
		t.Error("a stopped loop ran")
	}

	r := start(t, settings())
	r.awaitReady(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if err := r.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := <-r.ended; err != nil {
		t.Errorf("run ended with %v", err)
	}
	if _, err := net.DialTimeout("tcp", r.GRPCAddr(), time.Second); err == nil {
		t.Error("the door is still open")
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	a, err := app.New(t.Context(), onEmbedded(t, settings()), app.Deps{Logger: slog.New(slog.DiscardHandler)})
	must.Succeed(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Run(ctx); err != nil {
		t.Error(err)
	}
}

func TestTheStartWaitsForRedis(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	addr := free.Addr().String()
	_ = free.Close()
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = "redis://" + addr }))

	servers.Eventually(t, 10*time.Second, "the log says that the coordinator waits", func() bool {
		return strings.Contains(r.log.String(), "Redis cannot be reached")
	})
	if ok, body := r.ready(); ok || !strings.Contains(body, "not open yet") {
		t.Errorf("readyz says %s", body)
	}
	client := r.admin(t)
	// The deadline is for a listener that never serves.
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err = client.GetStats(ctx, &adminv1.GetStatsRequest{})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("a client hears %v", err)
	}

	redis, err := embedded.StartRedis(addr)
	must.Succeed(t, err)
	defer redis.Close()
	r.awaitReady(t)
	servers.Eventually(t, 10*time.Second, "a client is answered", func() bool {
		_, err := client.GetStats(t.Context(), &adminv1.GetStatsRequest{}, grpc.WaitForReady(true))
		return err == nil
	})
}

// A connection may be cut at any moment of the start. The coordinator must retry even after Redis was reached.
func TestCutConnectionDoesNotFailStart(t *testing.T) {
	redis := servers.Redis(t)
	proxy := wire.Redis(t, redis.Addr)
	var cut atomic.Bool
	proxy.On(func(e wire.Event) wire.Act {
		if e.Name == "CONFIG" && e.Phase == wire.Request && cut.CompareAndSwap(false, true) {
			return wire.Cut
		}
		return wire.Pass
	})
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = proxy.URL(redis.URL()) }))
	r.awaitReady(t)
	if !cut.Load() {
		t.Error("nothing was cut: no setting was asked for")
	}
}

func TestAnUnsafeRedisIsRefused(t *testing.T) {
	redis := servers.Redis(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = redis.URL() }))
	var unsafe *app.UnsafeError
	if err := <-r.ended; !errors.As(err, &unsafe) || !strings.Contains(err.Error(), "noeviction") {
		t.Errorf("got %v", err)
	}

	allowed := start(t, settings(func(c *config.Config) {
		c.Redis.URL, c.Redis.AllowUnsafe = redis.URL(), true
	}))
	allowed.awaitReady(t)
	if !strings.Contains(allowed.log.String(), "noeviction") {
		t.Errorf("the finding is not logged:\n%s", allowed.log)
	}
	// Findings allowed by redis.allow_unsafe raise no alert.
	allowed.holds(t, `msghandler_store_findings{severity="refuse"} 0`)
	if strings.Contains(allowed.get(t, "/metrics"), "\nmsghandler_store_findings{severity=\"allowed\"} 0\n") {
		t.Error("an allowed call is not counted")
	}
}

func TestAnotherNumberOfShardsIsRefused(t *testing.T) {
	redis, err := embedded.StartRedis("127.0.0.1:0")
	must.Succeed(t, err)
	defer redis.Close()
	first := start(t, settings(func(c *config.Config) { c.Redis.URL, c.Redis.Shards = redis.URL(), 16 }))
	first.awaitReady(t)
	second := start(t, settings(func(c *config.Config) { c.Redis.URL, c.Redis.Shards = redis.URL(), 4 }))
	err = <-second.ended
	if err == nil || !strings.Contains(err.Error(), "16") || !strings.Contains(err.Error(), "4") {
		t.Errorf("got %v", err)
	}
}

func TestReadinessFollowsRedis(t *testing.T) {
	redis := servers.Redis(t)
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = redis.URL() }))
	r.awaitReady(t)
	redis.Kill()
	servers.Eventually(t, 10*time.Second, "the coordinator is not ready without Redis", func() bool {
		ok, body := r.ready()
		var answer struct {
			Checks []struct {
				Name string
				OK   bool
			}
		}
		return !ok && json.Unmarshal([]byte(body), &answer) == nil && !answer.Checks[0].OK
	})
	redis.Start()
	r.awaitReady(t)
}

// A coordinator without Redis is NOT_SERVING, so that clients choose another coordinator.
func TestHealthFollowsRedis(t *testing.T) {
	t.Parallel()
	server := servers.Redis(t)
	between := wire.TCP(t, server.Addr)
	r := start(t, settings(func(c *config.Config) {
		c.Redis.URL = between.URL(server.URL())
		c.Shutdown.Grace = 20 * time.Second // a pass may wait for an answer until its call times out
	}))
	r.awaitReady(t)
	health := healthv1.NewHealthClient(dial(t, r.GRPCAddr()))
	await := func(want healthv1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		servers.Eventually(t, 20*time.Second, want.String(), func() bool {
			answer, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{})
			return err == nil && answer.GetStatus() == want
		})
	}
	await(healthv1.HealthCheckResponse_SERVING)
	between.Silence()
	await(healthv1.HealthCheckResponse_NOT_SERVING)
	between.Restore()
	await(healthv1.HealthCheckResponse_SERVING)
}
