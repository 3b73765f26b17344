package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// oldMessage is a message whose record below was written by the first version that could be started.
func oldMessage(id string) halfmsg.Message {
	return halfmsg.Message{
		Name: halfmsg.Name{Producer: "orders", ID: id}, Exchange: "shop", RoutingKey: "order.paid",
		ContentType: "application/json", Headers: map[string]string{"k": "v"},
		CallbackTarget: "dns:///127.0.0.1:48265", ConfirmAfter: 24 * time.Hour,
		Body: fmt.Appendf(nil, `{"id":"cpend0-b","items":[%s{}]}`,
			strings.Repeat(`{"sku":"A-1","quantity":2,"price":1999},`, 12)),
	}
}

// asAnOldOneLeft are the data of a killed coordinator of that version: one message each that is pending, owned,
// sendable after its verdict, and dead. The time of the verdict was in the notes, there were no timelines, and all
// coordinators shared a count.
func asAnOldOneLeft(t *testing.T, client *redis.Client) {
	t.Helper()
	const shard, created = "msghandler:{00}:", 1795466788616
	pipe := client.Pipeline()
	pipe.HSet(t.Context(), "msghandler:meta", "layout", 1, "shards", 1)
	pipe.SAdd(t.Context(), shard+"producers", "orders")
	pipe.HSet(t.Context(), shard+"pulse", "generation", created-1, "count", 42)
	for id, state := range map[string]string{
		"pending": "pending", "owned": "pending", "sendable": "sendable", "dead": "dead",
	} {
		pipe.Set(t.Context(), shard+"orders:m:"+id, `half 1795466788616 1e058ec2bfba89e4386b7d60871f06a2 {"exchange":"shop",`+
			`"routing_key":"order.paid","content_type":"application/json","headers":{"k":"v"},`+
			`"callback_target":"dns:///127.0.0.1:48265",`+
			`"confirm_after_ms":86400000}`+"\n"+string(oldMessage(id).Body), 0)
		pipe.ZAdd(t.Context(), shard+"orders:"+state, redis.Z{Score: created + 1000, Member: id})
		pipe.ZAdd(t.Context(), shard+"orders:"+state+":created", redis.Z{Score: created, Member: id})
	}
	pipe.HSet(t.Context(), shard+"orders:leases", "owned", "old-1/00c0ffee.1")
	pipe.HSet(t.Context(), shard+"orders:x:sendable", "sendable_at", created+8)
	pipe.HSet(t.Context(), shard+"orders:x:dead", "sendable_at", created+8, "publishes", 3, "copies", 3,
		"error_at", created+9, "updated_at", created+9, "error", "Exception (404)")
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestMessagesOfOlderVersionsAreFinished(t *testing.T) {
	t.Parallel()
	_, client, server := fresh(t, redisstore.Config{})
	client.FlushAll(t.Context())
	asAnOldOneLeft(t, client)
	store := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	pulse(t, store)

	for id, state := range map[string]halfmsg.State{
		"pending": halfmsg.Pending, "owned": halfmsg.Pending, "sendable": halfmsg.Sendable, "dead": halfmsg.Dead,
	} {
		if r := store.Create(t.Context(), []halfmsg.Message{oldMessage(id)})[0]; r.Err != nil || r.State != state {
			t.Errorf("the same %s message again: %s, %v", id, r.State, r.Err)
		}
	}
	dead := oldMessage("dead").Name
	r, err := store.Get(t.Context(), dead)
	if err != nil || r.PublishAttempts != 3 || r.LastError != "Exception (404)" ||
		r.SendableAt.UnixMilli() != 1795466788624 {
		t.Errorf("the dead one: %+v, %v", r, err)
	}
	if r := store.Retry(t.Context(), []halfmsg.Name{dead}, "127.0.0.1", "")[0]; r.Err != nil {
		t.Errorf("retry of the dead one: %v", r.Err)
	}
	settle(t, store, halfmsg.EventCommitted, 0, submit(t, store, oldMessage("pending").Name, oldMessage("owned").Name)...)
	claims, err := store.ClaimSendable(t.Context(), 10, time.Minute)
	if err != nil || len(claims) != 4 {
		t.Fatalf("claimed %d of 4 messages, %v", len(claims), err)
	}
	for _, c := range claims {
		if c.SendableAt.IsZero() || string(c.Message.Body) != string(oldMessage(c.ID).Body) ||
			(c.ID == "dead") != (c.Copies > 0) {
			t.Errorf("%s: sendable since %s, %d copies", c.Name, c.SendableAt, c.Copies)
		}
	}
	settle(t, store, halfmsg.EventAcked, 0, claims...)
	for _, key := range client.Keys(t.Context(), "msghandler:*").Val() {
		if !strings.Contains(key, ":m:") && key != "msghandler:meta" && !strings.HasSuffix(key, ":pulse") {
			t.Errorf("left is %s", key)
		}
	}
}

// Coordinators of versions before 2026-11-22 share a count. A newer coordinator must keep the shared count: without the
// count, older versions report a rollback, alert, and take all messages for copies.
func TestTheCountThatOlderVersionsShareStays(t *testing.T) {
	t.Parallel()
	_, client, server := fresh(t, redisstore.Config{})
	client.FlushAll(t.Context())
	asAnOldOneLeft(t, client)
	pulse(t, open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"}))
	got := client.HGetAll(t.Context(), "msghandler:{00}:pulse").Val()
	if got["count"] != "42" || got["generation"] != "1795466788615" || len(got) != 4 {
		t.Errorf("the counts are %v", got)
	}
}
