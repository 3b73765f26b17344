package redis_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// TestReturningBrokerFillsAClaim parks more messages than one script makes due again. A claim for their broker, which
// has returned, must still bring as many as it asks for, unless its time ends on a slow machine.
func TestReturningBrokerFillsAClaim(t *testing.T) {
	t.Parallel()
	const parked, wanted = 1200, 1000
	store, client, _ := fresh(t, redisstore.Config{Shards: 1, Brokers: []string{"events", "away"}})
	messages, names := numbered(parked, 10)
	for i := range messages {
		messages[i].Broker = "events"
	}
	for some := range slices.Chunk(messages, 200) {
		create(t, store, some...)
	}
	settle(t, store, halfmsg.EventCommitted, 0, submit(t, store, names...)...)
	for client.ZCard(t.Context(), "msghandler:{00}:parked@events").Val() < parked {
		if claims, err := store.ClaimSendable(t.Context(), 500, time.Minute, ""); err != nil || len(claims) > 0 {
			t.Fatalf("claimed %d messages for the default broker, %v", len(claims), err)
		}
	}
	begun := time.Now()
	claims, err := store.ClaimSendable(t.Context(), wanted, time.Minute, "away", "events")
	if slow := time.Since(begun) > redisstore.ParkingTime; err != nil || len(claims) != wanted && !slow {
		t.Errorf("claimed %d of %d, %v", len(claims), wanted, err)
	}
}

// parkOne makes a message for the broker events wait for its broker. Its owner, if it has one, lost the lease before.
func parkOne(t *testing.T, lease time.Duration) (*redisstore.Store, *redis.Client) {
	t.Helper()
	store, client, _ := fresh(t, redisstore.Config{Shards: 1, Brokers: []string{"events"}})
	m := half("1")
	m.Broker = "events"
	create(t, store, m)
	settle(t, store, halfmsg.EventCommitted, 0, submit(t, store, m.Name)...)
	if lease > 0 {
		if claims, err := store.ClaimSendable(t.Context(), 1, lease, "events"); err != nil || len(claims) != 1 {
			t.Fatal(claims, err)
		}
	}
	servers.Eventually(t, 20*time.Second, "the message is parked", func() bool {
		if claims, err := store.ClaimSendable(t.Context(), 1, time.Minute, ""); err != nil || len(claims) > 0 {
			t.Fatal(claims, err)
		}
		return client.ZCard(t.Context(), "msghandler:{00}:parked@events").Val() == 1
	})
	return store, client
}

// An owner that has died may have sent a copy. A message that is parked after that keeps the count.
func TestDeadOwnersParkedMessageIsFlagged(t *testing.T) {
	t.Parallel()
	store, _ := parkOne(t, 50*time.Millisecond)
	claims, err := store.ClaimSendable(t.Context(), 1, time.Minute, "events")
	if err != nil || len(claims) != 1 || claims[0].Copies != 1 {
		t.Errorf("claimed %+v, %v", claims, err)
	}
}

// A message that was worked on since it was parked keeps its due time when its broker returns.
func TestReturningBrokerKeepsLaterDueTimes(t *testing.T) {
	t.Parallel()
	store, client := parkOne(t, 0)
	const index = "msghandler:{00}:orders:sendable"
	due, err := client.ZScore(t.Context(), index, "1").Result()
	must.Succeed(t, err)
	must.Succeed(t, client.ZAdd(t.Context(), index, redis.Z{Score: due - 1, Member: "1"}).Err())
	claims, err := store.ClaimSendable(t.Context(), 1, time.Minute, "events")
	if err != nil || len(claims) != 0 {
		t.Errorf("claimed %+v, %v", claims, err)
	}
}
