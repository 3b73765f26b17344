package app_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// awaitStats waits until the answer of GetStats is as expected.
func (r *running) awaitStats(t *testing.T, what string, is func(stats *adminv1.GetStatsResponse) bool) {
	t.Helper()
	client := r.admin(t)
	var last *adminv1.GetStatsResponse
	defer func() {
		if t.Failed() {
			t.Logf("the last answer is %v", last)
		}
	}()
	servers.Eventually(t, time.Minute, what, func() bool {
		stats, err := client.GetStats(t.Context(), &adminv1.GetStatsRequest{})
		last = stats
		return err == nil && is(stats)
	})
}

// send stores and submits messages of a producer.
func (r *running) send(t *testing.T, producer, target string, ids ...string) {
	t.Helper()
	client := r.producers(t)
	for _, id := range ids {
		_, err := client.SendHalfMessage(t.Context(), &msghandlerv1.SendHalfMessageRequest{
			Producer: producer, CallbackTarget: target, Message: &msghandlerv1.Message{Id: id, RoutingKey: "paid"},
		})
		must.Succeed(t, err)
		if _, err := client.Submit(t.Context(), &msghandlerv1.SubmitRequest{Producer: producer, Id: id}); err != nil {
			t.Fatal(err)
		}
	}
}

// sums describes the rows of GetStats without times and rates.
func sums(stats *adminv1.GetStatsResponse) (rows string) {
	for _, p := range stats.GetProducers() {
		rows += fmt.Sprintf("%s: %d stored, %d acknowledged, failed: %t\n", p.GetName(), p.GetStoredTotal(),
			p.GetAcknowledgedTotal(),
			p.GetLastFailure() != "")
	}
	for _, e := range stats.GetExchanges() {
		rows += fmt.Sprintf("%q: %d acknowledged, %d failed\n", e.GetName(), e.GetAcknowledgedTotal(), e.GetRefusedTotal())
	}
	return rows
}

// charted is the sum of a field of all buckets of a chart.
func charted(t *testing.T, redis *servers.RedisServer, step time.Duration, field string) (sum int64) {
	t.Helper()
	pattern := fmt.Sprintf("msghandler:{00}:chart@%d:*", step.Milliseconds())
	for key := range strings.FieldsSeq(redis.CLI("KEYS", pattern)) {
		n, _ := strconv.ParseInt(strings.TrimSpace(redis.CLI("HGET", key, field)), 10, 64)
		sum += n
	}
	return sum
}

// highest are the highest values of the charts of a page.
var highest = regexp.MustCompile(`<b>[^<]*</b> <small>(max [^<]*)</small>`)

// Whichever coordinator an operator asks, the answer is the same.
func TestAllCoordinatorsShowTheSameSums(t *testing.T) {
	t.Parallel()
	redis, p := servers.Redis(t), startOrders(t)
	same := settings(func(c *config.Config) { c.Redis.URL = redis.URL() })
	first, second := start(t, same), start(t, same)
	first.awaitReady(t)
	second.awaitReady(t)
	first.queue(t, "paid")
	second.queue(t, "paid")
	first.send(t, "orders", "dns:///"+p.addr, "1", "2")
	second.send(t, "orders", "dns:///"+p.addr, "3", "4", "5")
	first.send(t, "gone", "dns:///127.0.0.1:1", "1")
	const want = "gone: 1 stored, 0 acknowledged, failed: true\n" +
		"orders: 5 stored, 5 acknowledged, failed: false\n\"\": 5 acknowledged, 0 failed\n"
	for name, r := range map[string]*running{"first": first, "second": second} {
		r.awaitStats(t, name+" has the sums", func(stats *adminv1.GetStatsResponse) bool {
			flow := stats.GetFlow()
			return sums(stats) == want && flow.GetCoordinatorCount() == 2 && flow.GetStoredPerSecond() > 0
		})
		page := r.get(t, "/")
		if !strings.Contains(page, "sums of 2 coordinators") || !strings.Contains(page, "connection refused") {
			t.Errorf("%s: the page shows no sums of both:\n%s", name, page)
		}
	}
	servers.Eventually(t, time.Minute, "the charts have all messages", func() bool {
		return charted(t, redis, 10*time.Second, "in") == 6 && charted(t, redis, 20*time.Minute, "out") == 5
	})
	for _, query := range []string{"/?range=1h", "/?range=1h&producer=orders", "/?range=1h&exchange="} {
		servers.Eventually(t, time.Minute, query+" is the same, and not empty", func() bool {
			here := fmt.Sprint(highest.FindAllStringSubmatch(first.get(t, query), -1))
			there := fmt.Sprint(highest.FindAllStringSubmatch(second.get(t, query), -1))
			return here == there && strings.Contains(here, "max 0.")
		})
	}
	must.Succeed(t, first.Stop(t.Context()))
	second.awaitStats(t, "a stopped coordinator does not count", func(stats *adminv1.GetStatsResponse) bool {
		return stats.GetFlow().GetCoordinatorCount() == 1
	})
	if n := charted(t, redis, 20*time.Minute, "in"); n != 6 {
		t.Errorf("after a coordinator has stopped, the charts have %d messages", n)
	}
}
