package redis_test

import (
	"fmt"
	"testing"
	"time"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

func TestRefusalsAreSharedForAWhile(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, there := r.coordinator("here"), r.coordinator("there")
	share := func(store *redisstore.Store, text string) string {
		t.Helper()
		shared, err := store.ShareRefusals(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(shared)
	}
	if got := share(here, `[{"producer":"orders"}]`); got != "[]" {
		t.Errorf("its own come back: %s", got)
	}
	r.pass(3 * time.Second)
	if got := share(there, ""); got != `[{3s [{"producer":"orders"}]}]` {
		t.Errorf("the others get %s", got)
	}
	share(here, "")
	if got := share(there, ""); got != "[]" {
		t.Errorf("after nothing was refused the others get %s", got)
	}
	share(here, "text")
	r.pass(redisstore.RefusalMemory + time.Second)
	if got := share(there, "more"); got != "[]" {
		t.Errorf("of a coordinator that is gone the others get %s", got)
	}
}

// A description outlives its coordinator, which may be missing.
func TestDescriptionsOutliveTheirCoordinators(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, there := r.coordinator("here"), r.coordinator("there")
	share := func(store *redisstore.Store, text string) string {
		t.Helper()
		shared, err := store.ShareSelf(t.Context(), text)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(shared)
	}
	share(here, `{"instance":"here"}`)
	r.pass(redisstore.FleetMemory - time.Second)
	if got := share(there, "{}"); got != `[{59m59s {"instance":"here"}}]` {
		t.Errorf("before the hour is over the others get %s", got)
	}
	r.pass(2 * time.Second)
	if got := share(there, "{}"); got != "[]" {
		t.Errorf("after an hour the others get %s", got)
	}
}

func TestEqualConfigurationsAreSharedOnce(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 2, Instance: "here"})
	for range 2 {
		for i := range 30 {
			shared, err := store.ShareConfiguration(t.Context(), fmt.Sprint("hash", i%2), fmt.Sprint("text", i%2))
			if err != nil || i > 0 && (len(shared) != 1 || shared[0].Text != fmt.Sprint("text", (i+1)%2)) {
				t.Errorf("at %d the other configurations are %v, %v", i, shared, err)
			}
		}
	}
	if n := client.HLen(t.Context(), "msghandler:{00b}:configurations").Val(); n != 2 {
		t.Errorf("%d configurations are kept", n)
	}
}

// After a failover to a host whose clock is behind, texts come from the future, and would not age for a long time.
func TestTextsAgeWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, there := r.coordinator("here"), r.coordinator("there")
	share := func(store *redisstore.Store) string {
		t.Helper()
		shared, err := store.ShareSelf(t.Context(), "{}")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(shared)
	}
	share(here)
	r.pass(-10 * time.Minute)
	if got := share(there); got != "[{0s {}}]" {
		t.Errorf("when the clock is set back the others get %s", got)
	}
	r.pass(time.Minute)
	if got := share(there); got != "[{1m0s {}}]" {
		t.Errorf("a minute later the others get %s", got)
	}
}

// A coordinator in a restart loop has a new name each time.
func TestSharedRefusalsAreBounded(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 2, Instance: "here"})
	const key = "msghandler:{00b}:refusals"
	for i := range 130 {
		shared := fmt.Sprint(time.Now().UnixMilli(), " text")
		if err := client.HSet(t.Context(), key, fmt.Sprint("run/", i), shared).Err(); err != nil {
			t.Fatal(err)
		}
	}
	shared, err := store.ShareRefusals(t.Context(), "own")
	if err != nil || len(shared) > 100 || client.HLen(t.Context(), key).Val() != 100 {
		t.Errorf("%d are shared and %d kept, %v", len(shared), client.HLen(t.Context(), key).Val(), err)
	}
	if ttl := client.TTL(t.Context(), key).Val(); ttl <= 0 || ttl > redisstore.RefusalMemory {
		t.Errorf("the key expires in %v", ttl)
	}
}
