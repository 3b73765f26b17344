package app_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// found returns the coordinator's findings by name.
func (r *running) found(t *testing.T) map[string]string {
	t.Helper()
	stats, err := r.admin(t).GetStats(t.Context(), &adminv1.GetStatsRequest{})
	must.Succeed(t, err)
	all := map[string]string{}
	for _, f := range stats.GetFindings() {
		if f.GetWhat() == "" || f.GetWhy() == "" || f.GetRemedy() == "" || f.GetSeverity() == 0 {
			t.Errorf("%v does not say what, why it matters and what to do", f)
		}
		all[f.GetName()] += f.GetWhat() + "\n"
	}
	return all
}

// Operators must see a producer whose half messages are all refused.
func TestARefusedProducerIsSeen(t *testing.T) {
	r := start(t, settings())
	r.awaitReady(t)
	if page := r.get(t, "/"); !strings.Contains(page, "All is well") {
		t.Fatalf("the page is\n%s", page)
	}
	p := startOrders(t)
	client := r.producers(t)
	for range 12 {
		refused := half(p, "1")
		refused.CallbackTarget = "stock.svc:9000"
		if _, err := client.SendHalfMessage(t.Context(), refused); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	r.holds(t, `msghandler_refusals_total{producer="orders",reason="CALLBACK_FORBIDDEN"} 12`,
		`msghandler_events_total{kind="producer_refused"} 1`)
	if what := r.found(t)["producer-refused"]; !strings.Contains(what, "refused calls of producer orders: 12 since ") ||
		!strings.Contains(what, "with CALLBACK_FORBIDDEN: ") || !strings.Contains(what, "stock.svc:9000") {
		t.Errorf("found is %q", what)
	}
	page := r.get(t, "/")
	for _, want := range []string{
		"Something is wrong",
		`class="bad"><p class="what">refused calls of producer orders: 12`, "allow its target in callbacks.allow",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	var lines []string
	for line := range strings.Lines(r.log.String()) {
		if strings.Contains(line, "calls of a producer are refused") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		t.Fatalf("%d lines tell of the finding:\n%s", len(lines), lines)
	}
	for _, want := range []string{
		"level=WARN", "producer=orders", "reason=CALLBACK_FORBIDDEN", "stock.svc:9000",
		"remedy=\"allow its target",
	} {
		if !strings.Contains(lines[0], want) {
			t.Errorf("the log lacks %q: %s", want, lines[0])
		}
	}
}

// Behind a load balancer a coordinator refuses, and an operator asks another coordinator.
func TestRefusalsAreSeenAtEachCoordinator(t *testing.T) {
	url := "redis://" + servers.Redis(t).Addr + "/0"
	onRedis := func(c *config.Config) { c.Redis.URL = url }
	one, other := start(t, settings(onRedis)), start(t, settings(onRedis))
	one.awaitReady(t)
	other.awaitReady(t)
	p := startOrders(t)
	for n, r := range []*running{one, other, other} {
		refused := half(p, fmt.Sprint(n))
		refused.CallbackTarget = "stock.svc:9000"
		_, err := r.producers(t).SendHalfMessage(t.Context(), refused)
		if status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	for _, r := range []*running{one, other} {
		servers.Eventually(t, 20*time.Second, "the refusals of both are found", func() bool {
			return strings.Contains(r.found(t)["producer-refused"], "refused calls of producer orders: 3 since ")
		})
	}
}

func TestDeadLettersAreSeen(t *testing.T) {
	t.Parallel()
	r := start(t, settings(func(c *config.Config) {
		c.Events.DeadLetterQueues, c.Events.Queues, c.Events.QueueMessages = []string{
			"payments.dead",
		}, []string{
			"payments",
			"misspelt",
		}, 3
		c.DeadLetters = map[string]config.DeadLetters{"stock": {Queue: "stock.dead"}, "wrong": {Queue: "misspelt"}}
	}))
	r.awaitReady(t)
	r.fill(t, "payments.dead", 17)
	r.fill(t, "payments", 2)
	r.fill(t, "stock.dead", 3)
	r.holds(t, `msghandler_dead_letters{queue="payments.dead"} 17`, `msghandler_dead_letters{queue="stock"} 3`)
	r.holds(t, `msghandler_dead_letter_queue_messages{queue="payments.dead"} 17`,
		`msghandler_watched_queue_messages{queue="payments"} 2`)
	found := r.found(t)
	if what := found["queue-dead-letters"]; what != "dead letters in queue payments.dead: 17\n" {
		t.Errorf("found is %q", what)
	}
	if what := found["letters-waiting"]; what != "dead letters of stock (queue stock.dead, broker (default)): 3\n" {
		t.Errorf("found is %q", what)
	}
	if what := found["letters-unread"]; !strings.HasPrefix(what, "the dead letters of wrong (queue misspelt, ") {
		t.Errorf("found is %q", what)
	}
	if what := found["queue-missing"]; what != "the watched queue misspelt does not exist\n" {
		t.Errorf("found is %q", what)
	}
	if what, long := found["queue-long"]; long {
		t.Errorf("below the threshold the log says %q", what)
	}
	page := r.get(t, "/")
	for _, want := range []string{
		"Needs attention", "dead letters in queue payments.dead: 17",
		"msghandler dlq list --queue payments.dead",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	r.fill(t, "payments", 1)
	servers.Eventually(t, time.Minute, "the queue is long", func() bool { return r.found(t)["queue-long"] != "" })
}

// fill puts messages into a queue without a consumer.
func (r *running) fill(t *testing.T, queue string, messages int) {
	t.Helper()
	r.declare(t, queue)
	conn, err := amqp.Dial(r.amqp)
	must.Succeed(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must.Succeed(t, err)
	for range messages {
		must.Succeed(t, ch.PublishWithContext(t.Context(), "", queue, false, false, amqp.Publishing{}))
	}
}

// A failed part leaves /readyz at OK while half messages are still accepted, so the findings must name the part.
func TestADegradedCoordinatorIsAFinding(t *testing.T) {
	nobody := nobodyAt(t)
	r := start(t, settings(func(c *config.Config) { c.AMQP.URLs = []string{"amqp://guest:guest@" + nobody + "/"} }))
	servers.Eventually(t, time.Minute, "the coordinator is ready without a broker", func() bool {
		ok, body := r.ready()
		return ok && strings.Contains(body, `"degraded": true`)
	})
	if what := r.found(t)["rabbitmq-away"]; !strings.Contains(what, `the check "rabbitmq" fails: `) {
		t.Errorf("found is %q", what)
	}
}

// A clean stop leaves no finding. The next coordinator reports a run without a clean stop at once.
func TestOnlyUncleanStopsAreReported(t *testing.T) {
	t.Parallel()
	redis := servers.Redis(t)
	on := func(c *config.Config) { c.Redis.URL = redis.URL() }
	first := start(t, settings(on))
	first.awaitReady(t)
	report := func() string { return redis.CLI("HVALS", "msghandler:{00}:coordinators") }
	if got := report(); !strings.Contains(got, "running") {
		t.Errorf("the report is %q", got)
	}
	must.Succeed(t, first.Stop(context.Background()))
	if got := report(); !strings.Contains(got, "stopped") {
		t.Errorf("after the stop the report is %q", got)
	}
	for name, ago := range map[string]time.Duration{
		"killed-1/0a": 1000 * time.Hour, "killed-2/0b": 1000 * time.Hour,
		"killed-3/0c": time.Minute, "killed-4/0d": 2 * time.Minute, "killed-5/0e": 3 * time.Minute,
	} {
		text := fmt.Sprintf("%d\nrunning\n{}\n", time.Now().Add(-ago).UnixMilli())
		redis.CLI("HSET", "msghandler:{00}:coordinators", name, text)
	}
	next := start(t, settings(on))
	next.awaitReady(t)
	next.holds(t, "msghandler_unclean_ends 3")
	log := next.log.String()
	if !strings.Contains(log, `"coordinators ended without a clean stop; others go on with their messages when their `+
		`leases end" coordinator=`+next.Instance()+" coordinators=3 last_coordinator=killed-3 ") {
		t.Errorf("the log is\n%s", log)
	}
	what := next.found(t)["coordinators-unclean-end"]
	if !strings.Contains(what, "3 within the last hour, 3 in the last ten minutes; the last was killed-3") {
		t.Errorf("found is %q", what)
	}
	if page := next.get(t, "/"); !strings.Contains(page, "Something is wrong") ||
		!strings.Contains(page, "ended without a clean stop: 3") {
		t.Errorf("the page is\n%s", page)
	}
}
