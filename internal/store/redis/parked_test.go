package redis_test

import (
	"slices"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
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
