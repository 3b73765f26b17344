package redis_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// named is a message for the broker events.
func named(id string) halfmsg.Message {
	m := later(id)
	m.Broker = "events"
	return m
}

// TestParkedMessagesCountAsBacklog: an alert about messages that wait must see those whose broker is away.
func TestParkedMessagesCountAsBacklog(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Brokers: []string{"events"}})
	packed := named("1")
	packed.Body = []byte(strings.Repeat("packable ", 100))
	create(t, store, packed, later("2"))
	settle(t, store, halfmsg.EventCommitted, 0, submit(t, store, named("1").Name, later("2").Name)...)
	for want, without := range map[int64][]string{2: nil, 0: {"", "events"}} { // nothing is claimed, or parked
		if waiting, err := store.Backlog(t.Context(), -time.Second, without...); err != nil || waiting != want {
			t.Errorf("%d messages wait without the brokers %q, %v", waiting, without, err)
		}
	}
	if claims, err := store.ClaimSendable(t.Context(), 10, time.Minute, "other"); err != nil || len(claims) > 0 {
		t.Fatal(claims, err)
	}
	parked := client.ZCard(t.Context(), "msghandler:{00}:parked@").Val() +
		client.ZCard(t.Context(), "msghandler:{00}:parked@events").Val()
	if waiting, err := store.Backlog(t.Context(), -time.Second); err != nil || waiting != 2 || parked != 2 {
		t.Errorf("%d of %d parked messages count, %v", waiting, parked, err)
	}
	if waiting, err := store.Backlog(t.Context(), -time.Second, "events"); err != nil || waiting != 1 {
		t.Errorf("%d messages wait for other brokers than events, %v", waiting, err)
	}
	counted := func(want map[string]int64) {
		t.Helper()
		if counts, err := store.Parked(t.Context()); err != nil || !maps.Equal(counts, want) {
			t.Errorf("parked are %v, want %v: %v", counts, want, err)
		}
	}
	counted(map[string]int64{"": 1, "events": 1})
	if claims, err := store.ClaimSendable(t.Context(), 10, time.Minute, "events"); err != nil || len(claims) != 1 {
		t.Fatal(claims, err)
	}
	counted(map[string]int64{"": 1})
	if waiting, err := store.Backlog(t.Context(), -time.Second); err != nil || waiting != 1 {
		t.Errorf("%d messages count after the first is claimed, %v", waiting, err)
	}
}
