package app_test

import (
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

// Each half message counts for its producer, and with the reason where it is not stored, also in a batch.
func TestHalfMessagesAreCounted(t *testing.T) {
	r := start(t, settings())
	r.awaitReady(t)
	p := startOrders(t)
	client := r.producers(t)
	for _, change := range []func(*msghandlerv1.SendHalfMessageRequest){
		func(*msghandlerv1.SendHalfMessageRequest) {},
		func(r *msghandlerv1.SendHalfMessageRequest) { r.CallbackTarget = "evil:1" },
		func(r *msghandlerv1.SendHalfMessageRequest) { r.Message.Body = []byte("other") },
		func(r *msghandlerv1.SendHalfMessageRequest) { r.Message.Id = "" },
		func(r *msghandlerv1.SendHalfMessageRequest) { r.Producer = "or\nders" },
	} {
		request := half(p, "1")
		change(request)
		_, _ = client.SendHalfMessage(t.Context(), request) // the metrics have the answer
	}
	batch := &msghandlerv1.SendHalfMessagesRequest{
		Producer: "stock", CallbackTarget: p.addr,
		Messages: []*msghandlerv1.Message{half(p, "1").GetMessage(), {Id: "", RoutingKey: "paid"}},
	}
	if _, err := client.SendHalfMessages(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	batch.CallbackTarget = "evil:1"
	_, _ = client.SendHalfMessages(t.Context(), batch)
	const counter = "msghandler_half_messages_refused_total"
	r.holds(t, counter+`{producer="(no valid name)",reason="INVALID_ARGUMENT"} 1`,
		counter+`{producer="orders",reason="CALLBACK_FORBIDDEN"} 1`,
		counter+`{producer="orders",reason="INVALID_ARGUMENT"} 1`,
		counter+`{producer="orders",reason="MESSAGE_EXISTS"} 1`,
		counter+`{producer="stock",reason="CALLBACK_FORBIDDEN"} 2`,
		counter+`{producer="stock",reason="INVALID_ARGUMENT"} 1`)
	stored := map[string]int64{}
	r.awaitStats(t, "both stored messages", func(stats *adminv1.GetStatsResponse) bool {
		for _, p := range stats.GetProducers() {
			stored[p.GetName()] = p.GetStoredTotal()
		}
		return stored["orders"] == 1 && stored["stock"] == 1
	})
}

// A full Redis is on the page, in the findings and in the metrics, and refuses half messages under a reason of its own.
func TestAFullRedisIsSeen(t *testing.T) {
	redis := servers.Redis(t)
	r := start(t, settings(func(c *config.Config) { c.Redis.URL = redis.URL() }))
	r.awaitReady(t)
	p := startOrders(t)
	redis.CLI("CONFIG", "SET", "maxmemory", "100kb")
	r.holds(t, `msghandler_redis_memory_limit_bytes{server="`+redis.Addr+`"} 102400`)
	servers.Eventually(t, time.Minute, "the finding", func() bool { return r.found(t)["redis-full"] != "" })
	if page := r.get(t, "/"); !strings.Contains(page, "of maxmemory") {
		t.Errorf("the page is\n%s", page)
	}
	client := r.producers(t)
	_, _ = client.SendHalfMessage(t.Context(), half(p, "1"))
	r.holds(t, `msghandler_half_messages_refused_total{producer="orders",reason="STORE_FULL"} 1`)
	redis.CLI("CONFIG", "SET", "maxmemory", "0")
	servers.Eventually(t, time.Minute, "no finding", func() bool { return r.found(t)["redis-full"] == "" })
}
