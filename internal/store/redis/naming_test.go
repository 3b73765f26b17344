package redis_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// named is a message for the broker events.
func named(id string) halfmsg.Message {
	m := later(id)
	m.Broker = "events"
	return m
}

// TestNamesFollowTheCoordinators: messages name a broker only while no coordinator of an older version runs, and the
// data go back only when no message that names a broker is kept.
func TestNamesFollowTheCoordinators(t *testing.T) {
	t.Parallel()
	older, client, server := fresh(t, redisstore.Config{Layout: 4})
	note := func(store *redisstore.Store) {
		t.Helper()
		pulse(t, store)
		if _, err := store.NoteRun(t.Context(), true); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, store *redisstore.Store, id, layout string, refusal error) {
		t.Helper()
		r := store.Create(t.Context(), []halfmsg.Message{named(id), later(id + "-plain")})
		if !errors.Is(r[0].Err, refusal) || r[1].Err != nil {
			t.Errorf("%s: %v, want %v; a message without a broker: %v", what, r[0].Err, refusal, r[1].Err)
		}
		if got := client.HGet(t.Context(), "msghandler:meta", "layout").Val(); got != layout {
			t.Errorf("%s: the data have layout %s, want %s", what, got, layout)
		}
	}
	note(older)
	client.HDel(t.Context(), "msghandler:{00}:layouts", client.HKeys(t.Context(), "msghandler:{00}:layouts").Val()...)
	brokers := []string{"events"}
	newer := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler", Brokers: brokers})
	note(newer)
	want("beside an older version", newer, "beside", "4", halfmsg.ErrNoBrokersYet)
	if err := older.NoteCleanStop(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.HDel(t.Context(), "msghandler:{00}:pulse", pulseNames(t, client)[0]) // it has not counted for a while
	without := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	note(without)
	want("no coordinator has named a broker", newer, "unnamed", "4", halfmsg.ErrNoBrokersYet)
	note(newer)
	want("right after the change", newer, "early", "5", halfmsg.ErrNoBrokersYet)
	client.HSet(t.Context(), "msghandler:meta", "since", 1) // a while later
	note(newer)
	note(without)
	want("a while later", newer, "late", "5", nil)
	want("at a coordinator that has no names", without, "late-2", "5", nil)

	back := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler", Layout: 4})
	note(back)
	note(newer)
	want("a coordinator was set back", newer, "back", "5", halfmsg.ErrNoBrokersYet)
	client.HSet(t.Context(), "msghandler:meta", "back", 1, "since", 1) // a while later
	lapse(t, client)
	finishPages(t, back)
	note(back)
	want("a message that names a broker is kept", newer, "kept", "5", halfmsg.ErrNoBrokersYet)
	for _, r := range back.Rollback(t.Context(), []halfmsg.Name{named("late").Name, named("late-2").Name}) {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	note(back)
	want("none is kept", newer, "none", "4", halfmsg.ErrNoBrokersYet)
}

// TestOlderVersionsRefuseNamedRecords: the first word of a record that names a broker is none that older versions read,
// packed or not, wherever the record is written.
func TestOlderVersionsRefuseNamedRecords(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Brokers: []string{"events"}})
	words := func(id string) string {
		word, _, _ := strings.Cut(client.Get(t.Context(), base+"m:"+id).Val(), " ")
		return word
	}
	plain, packable := named("plain"), named("packable")
	packable.Body = []byte(strings.Repeat("packable ", 100))
	create(t, store, plain, packable, later("without"))
	lapse(t, client)
	finishPages(t, store)
	for id, want := range map[string]string{"plain": "HALF", "packable": "PACK", "without": "half"} {
		if got := words(id); got != want {
			t.Errorf("the record of %s begins with %q, want %q", id, got, want)
		}
	}
	for id, damage := range map[string][2]string{
		"plain": {"HALF ", "half "}, "packable": {`{"broker":"events",`, `{`}, "without": {"half ", "HALF "},
	} {
		text := client.Get(t.Context(), base+"m:"+id).Val()
		client.Set(t.Context(), base+"m:"+id, strings.Replace(text, damage[0], damage[1], 1), redis.KeepTTL)
		if _, err := store.Get(t.Context(), half(id).Name); !errors.Is(err, halfmsg.ErrCorrupt) {
			t.Errorf("%s with another first word: %v", id, err)
		}
	}
}

// TestParkedMessagesCountAsBacklog: an alert about messages that wait must see those whose broker is away.
func TestParkedMessagesCountAsBacklog(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Brokers: []string{"events"}})
	create(t, store, named("1"), later("2"))
	settle(t, store, halfmsg.EventCommitted, 0, submit(t, store, named("1").Name, later("2").Name)...)
	if claims, err := store.ClaimSendable(t.Context(), 10, time.Minute, "other"); err != nil || len(claims) > 0 {
		t.Fatal(claims, err)
	}
	parked := client.ZCard(t.Context(), "msghandler:{00}:parked@").Val() +
		client.ZCard(t.Context(), "msghandler:{00}:parked@events").Val()
	if waiting, err := store.Backlog(t.Context(), -time.Second); err != nil || waiting != 2 || parked != 2 {
		t.Errorf("%d of %d parked messages count, %v", waiting, parked, err)
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
