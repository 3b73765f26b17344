package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/internal/access"
	"github.com/msghandler/msghandler/internal/cause"
	"github.com/msghandler/msghandler/internal/console"
	"github.com/msghandler/msghandler/internal/console/login"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a console on the loopback, with a scripted store and scripted checks.
type rig struct {
	console *console.Console
	metrics *console.Metrics
	url     string
	reads   atomic.Int64
	// failing is the result of the required check, degraded the result of the other check.
	failing, degraded atomic.Value
}

type failure struct{ error }

func start(t *testing.T, change ...func(*console.Config)) *rig {
	t.Helper()
	r := &rig{metrics: console.NewMetrics()}
	r.failing.Store(failure{})
	r.degraded.Store(failure{})
	r.metrics.Build("v1.2.3", "host-1")
	config := console.Config{
		Instance: "host-1", Version: "v1.2.3", Metrics: r.metrics, Hosts: []string{"", "console.example.com", "Shop_1"},
		Login: login.Config{Anonymous: access.Identity{Kind: access.Anonymous, Role: access.Admin}},
		Checks: []console.Check{
			{Name: "redis", Required: true, Run: func(context.Context) error { return r.failing.Load().(failure).error }},
			{Name: "rabbitmq", Run: func(context.Context) error { return r.degraded.Load().(failure).error }},
		},
		Stats: func(context.Context) ([]halfmsg.Stat, error) {
			r.reads.Add(1)
			return []halfmsg.Stat{
				{
					State: halfmsg.Pending, Count: 7, Producers: map[string]int64{"orders": 7},
					OldestAt: time.Now().Add(-time.Minute), FirstDueAt: time.Now().Add(-20 * time.Second),
				}, {State: halfmsg.Dead}, {State: halfmsg.Sendable, FirstDueAt: time.Now().Add(time.Hour)},
			}, r.failing.Load().(failure).error
		},
	}
	for _, f := range change {
		f(&config)
	}
	r.console = console.New(config)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	r.url = "http://" + listener.Addr().String()
	served := make(chan error, 1)
	go func() { served <- r.console.Serve(listener) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := r.console.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return r
}

func (r *rig) get(t *testing.T, path string) (int, string) {
	t.Helper()
	answer, err := http.Get(r.url + path)
	must.Succeed(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	must.Succeed(t, err)
	return answer.StatusCode, string(body)
}

// Alerts name the findings that the console and the doctor name.
func TestMetricsNameFindings(t *testing.T) {
	r := start(t, func(c *console.Config) {
		c.Instance = "c1"
		c.Findings = func() []*adminv1.Finding {
			return []*adminv1.Finding{
				{Name: "config-refused", Coordinators: []string{"c2", "c1"}},
				{Name: "coordinators-versions"},
				{Name: "redis-full", Coordinators: []string{"c2"}},
				{Name: "producer-runaway", Subject: "stock"},
			}
		}
		c.Checks[0].Part, c.Checks[1].Part = cause.Redis, cause.Part{System: "rabbitmq"}
	})
	r.metrics.Paused("orders", true)
	r.metrics.Failed("", "shop", errors.New("NO_ROUTE"))
	r.degraded.Store(failure{errors.New("connection refused")})
	_, text := r.get(t, "/metrics")
	for _, want := range []string{
		`{finding="config-refused",subject=""} 1`, `{finding="coordinators-versions",subject=""} 1`,
		`{finding="rabbitmq-away",subject="rabbitmq"} 1`,
		`{finding="producer-away",subject="orders"} 1`, `{finding="refused-no-route",subject="shop"} 1`,
		`{finding="producer-runaway",subject="stock"} 1`,
	} {
		if !strings.Contains(text, "msghandler_problem"+want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	if strings.Contains(text, `finding="redis-full"`) {
		t.Error("the problem of another coordinator is exported")
	}
	if strings.Contains(text, `subject="redis"`) {
		t.Error("a check that holds is a problem")
	}
}

func TestReadyNeedsEveryRequiredCheck(t *testing.T) {
	r := start(t)
	if status, body := r.get(t, "/readyz"); status != http.StatusOK {
		t.Errorf("got %d: %s", status, body)
	}

	r.failing.Store(failure{errors.New("connection refused")})
	status, body := r.get(t, "/readyz")
	var answer struct {
		Ready  bool
		Checks []struct {
			Name, Error string
			OK          bool
		}
	}
	must.Succeed(t, json.Unmarshal([]byte(body), &answer))
	if status != http.StatusServiceUnavailable || answer.Ready || len(answer.Checks) != 2 ||
		answer.Checks[0].Error != "connection refused" || !answer.Checks[1].OK {
		t.Errorf("got %d: %s", status, body)
	}

	r.failing.Store(failure{})
	r.console.SetStopping()
	if status, body := r.get(t, "/readyz"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "is stopping") {
		t.Errorf("got %d: %s", status, body)
	}
	if status, _ := r.get(t, "/healthz"); status != http.StatusOK {
		t.Errorf("a stopping process is still alive, got %d", status)
	}
}

// The errors of checks name servers and users, and the notes say what was lost.
func TestStrangersLearnNoReasons(t *testing.T) {
	const reason, note = "user orders at redis-1:6379: WRONGPASS", "data rollback detected"
	for _, tc := range []struct {
		role  access.Role
		host  string
		tells bool
	}{
		{access.Viewer, "localhost", true}, {access.NoRole, "localhost", false}, {access.Viewer, "evil.example", false},
	} {
		r := start(t, func(c *console.Config) {
			c.Login = login.Config{Anonymous: access.Identity{Kind: access.Anonymous, Role: tc.role}}
			c.Checks[0].Note = func() string { return note }
		})
		r.failing.Store(failure{errors.New(reason)})
		answer, body := r.send(t, http.MethodGet, "/readyz", tc.host)
		if answer.StatusCode != http.StatusServiceUnavailable || strings.Contains(body, reason) != tc.tells ||
			strings.Contains(body, note) != tc.tells || strings.Contains(body, `"remedy"`) != tc.tells ||
			!strings.Contains(body, `"name": "redis"`) {
			t.Errorf("to %s at %s: got %d %s", tc.role, tc.host, answer.StatusCode, body)
		}
	}
}

func TestPanicOfCheckIsItsFailure(t *testing.T) {
	r := start(t, func(c *console.Config) {
		c.Checks[1].Run = func(context.Context) error { panic("an unexpected answer") }
	})
	status, body := r.get(t, "/readyz")
	if status != http.StatusOK || !strings.Contains(body, "panic: an unexpected answer") {
		t.Errorf("/readyz answers %d %s", status, body)
	}
}

// If every failing check took the coordinator out of service, producers would stop although half messages are accepted.
func TestADegradedCoordinatorStaysReady(t *testing.T) {
	r := start(t)
	if _, body := r.get(t, "/readyz"); !strings.Contains(body, `"degraded": false`) {
		t.Errorf("all is well, and the page says %s", body)
	}
	r.degraded.Store(failure{errors.New("not connected")})
	status, body := r.get(t, "/readyz")
	for _, want := range []string{`"ready": true`, `"degraded": true`, `"required": false`, "not connected"} {
		if status != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("got %d, want %s: %s", status, want, body)
		}
	}
	if _, page := r.get(t, "/"); !strings.Contains(page, "Something is wrong") ||
		!strings.Contains(page, "not connected") {
		t.Errorf("the page is\n%s", page)
	}
}

func TestAHangingCheckTimesOut(t *testing.T) {
	c := console.New(console.Config{
		Login: login.Config{Anonymous: access.Identity{Kind: access.Anonymous, Role: access.Viewer}},
		Stats: func(context.Context) ([]halfmsg.Stat, error) { return nil, nil },
		Checks: []console.Check{{Name: "slow", Required: true, Run: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}}},
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	go func() { _ = c.Serve(listener) }()
	defer c.Stop(context.Background())
	r := &rig{url: "http://" + listener.Addr().String()}
	if status, body := r.get(t, "/readyz"); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "deadline") {
		t.Errorf("got %d: %s", status, body)
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestMetricsDoNotAlwaysAskStore(t *testing.T) {
	r := start(t)
	r.metrics.Settled(halfmsg.EventAcked, "stored", 2)
	r.metrics.Settled(halfmsg.EventAcked, "lease_lost", 1)
	r.metrics.Published("", "orders", halfmsg.Refused, 3)
	r.metrics.Confirmed("orders", 2,
		map[string]halfmsg.Verdict{"1": halfmsg.VerdictCommitted, "2": halfmsg.VerdictUnknown}, time.Second, nil)
	r.metrics.Confirmed("orders", 5, nil, time.Second, errors.New("away"))
	r.metrics.Deleted("orders", 6, time.Second, nil)
	r.metrics.MarkersLeft("orders", 7)
	r.metrics.Paused("orders", true)
	r.metrics.RPC("Submit", "OK", time.Millisecond)
	r.metrics.BatchOutcome("SubmitAll", "NotFound")
	r.metrics.Loop("confirm", func() float64 { return 42 }, func() float64 { return 3 })
	var body string
	for range 5 {
		_, body = r.get(t, "/metrics")
		r.get(t, "/")
	}
	if n := r.reads.Load(); n != 1 {
		t.Errorf("the store was asked %d times", n)
	}
	for _, want := range []string{
		`msghandler_messages{state="pending"} 7`, `msghandler_pending_messages{producer="orders"} 7`,
		`msghandler_messages{state="dead"} 0`, `msghandler_store_up 1`,
		`msghandler_overdue_seconds{state="pending"} 2`, `msghandler_overdue_seconds{state="sendable"} 0`,
		`msghandler_overdue_seconds{state="dead"} 0`,
		`msghandler_oldest_message_age_seconds{state="pending"} 6`, `msghandler_oldest_message_age_seconds{state="dead"} 0`,
		`msghandler_moves_total{event="acked",fate="stored"} 2`, `msghandler_moves_total{event="acked",fate="lease_lost"} 1`,
		`msghandler_publishes_total{broker="(default)",exchange="orders",outcome="refused"} 3`,
		`msghandler_confirms_total{producer="orders",result="committed"} 1`,
		`msghandler_confirms_total{producer="orders",result="unreachable"} 5`,
		`msghandler_marker_deletions_total{result="deleted"} 6`,
		`msghandler_marker_deletions_total{result="left"} 7`, `msghandler_callback_targets_paused{producer="orders"} 1`,
		`msghandler_calls_total{code="OK",method="Submit"} 1`,
		`msghandler_outcomes_total{code="NotFound",method="SubmitAll"} 1`,
		`msghandler_loop_passes_total{loop="confirm"} 42`, `msghandler_loop_failures{loop="confirm"} 3`,
		`version="v1.2.3"`, "go_goroutines", "process_resident_memory_bytes",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics lack %q", want)
		}
	}
}

func TestMetricsOfSilentStore(t *testing.T) {
	r := start(t)
	r.failing.Store(failure{errors.New("away")})
	status, body := r.get(t, "/metrics")
	if status != http.StatusOK || !strings.Contains(body, "msghandler_store_up 0") ||
		strings.Contains(body, "msghandler_messages{") {
		t.Errorf("got %d: %s", status, body)
	}
	if status, body := r.get(t, "/"); status != http.StatusOK || !strings.Contains(body, "cannot be counted: away") {
		t.Errorf("got %d: %s", status, body)
	}
}

func TestThePageShowsStatesAndChecks(t *testing.T) {
	r := start(t)
	if _, body := r.get(t, "/"); !strings.Contains(body, "All is well") || !strings.Contains(body, ">7<") {
		t.Errorf("the page is\n%s", body)
	}
	r.failing.Store(failure{errors.New("<script>")})
	_, body := r.get(t, "/")
	for _, want := range []string{"pending", "Something is wrong", "host-1", "v1.2.3", "&lt;script&gt;"} {
		if !strings.Contains(body, want) {
			t.Errorf("the page lacks %q:\n%s", want, body)
		}
	}
	status, body := r.get(t, "/other")
	if status != http.StatusNotFound || !strings.Contains(body, "No such page") || !strings.Contains(body, "Overview") {
		t.Errorf("an unknown address is answered %d\n%s", status, body)
	}
	for _, path := range []string{"/other", "/messages"} {
		answer, err := http.Post(r.url+path, "", nil)
		must.Succeed(t, err)
		page, err := io.ReadAll(answer.Body)
		must.Succeed(t, errors.Join(err, answer.Body.Close()))
		if answer.StatusCode != http.StatusNotFound || !strings.Contains(string(page), "takes no POST at "+path) {
			t.Errorf("a POST to %s is answered %d\n%s", path, answer.StatusCode, page)
		}
	}
}
