package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// runs is a Redis with a clock set by the test, and coordinators on this Redis.
type runs struct {
	t      *testing.T
	server *miniredis.Miniredis
	now    time.Time
}

func newRuns(t *testing.T) *runs {
	r := &runs{t: t, server: miniredis.RunT(t), now: time.UnixMilli(1_800_000_000_000)}
	r.pass(0)
	return r
}

func (r *runs) pass(d time.Duration) {
	r.now = r.now.Add(d)
	r.server.SetTime(r.now)
}

func (r *runs) coordinator(name string) *redisstore.Store {
	r.t.Helper()
	return open(r.t, redisstore.Config{URL: "redis://" + r.server.Addr(), Prefix: "msghandler", Shards: 2, Instance: name})
}

// alive notes the run of each, counts on in its pulse, and returns the ended coordinators as seen by the last, the
// latest first.
func (r *runs) alive(all ...*redisstore.Store) (names []string) {
	r.t.Helper()
	for _, store := range all {
		pulse(r.t, store)
		ends, err := store.NoteRun(r.t.Context(), true)
		if err != nil {
			r.t.Fatal(err)
		}
		names = nil
		for _, end := range ends {
			names = append(names, end.Instance)
		}
	}
	return names
}

func (r *runs) want(got []string, want ...string) {
	r.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("ended without a clean stop are %v, want %v", got, want)
	}
}

func TestOnlyUncleanEndsAreTold(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, killed, stopped := r.coordinator("here"), r.coordinator("killed"), r.coordinator("stopped")
	r.want(r.alive(stopped, killed, here))
	r.pass(time.Second)
	if err := stopped.NoteCleanStop(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.pass(redisstore.RunSilence - time.Second)
	r.want(r.alive(here)) // not ended yet
	r.pass(2 * time.Second)
	r.want(r.alive(here), "killed")

	next := r.coordinator("next") // hears of it at once
	r.want(r.alive(next), "killed")
	r.pass(time.Second)
	r.want(r.alive(killed, here)) // back after an interruption

	r.pass(redisstore.RunMemory - time.Second)
	r.want(r.alive(here), "killed", "next")
	r.pass(redisstore.RunSilence)
	r.want(r.alive(here))
	if fields, err := r.server.HKeys("msghandler:{00b}:runs"); err != nil || len(fields) != 1 {
		t.Errorf("left are %v, %v", fields, err)
	}
}

// Many coordinators see an end, and a single coordinator reports the end. A coordinator that has just started cannot
// tell an end from an outage of Redis, so a new coordinator does not judge, and takes no report away from the others.
func TestAnEndIsReportedOnce(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, there, killed := r.coordinator("here"), r.coordinator("there"), r.coordinator("killed")
	r.want(r.alive(killed, here, there))
	r.pass(redisstore.RunSilence + time.Second)
	pulse(t, here)
	pulse(t, there)
	unreported := func(store *redisstore.Store, judge bool) (count int) {
		t.Helper()
		ends, err := store.NoteRun(t.Context(), judge)
		if err != nil || judge && len(ends) != 1 || !judge && len(ends) != 0 {
			t.Fatalf("ends %v, %v", ends, err)
		}
		for _, end := range ends {
			if end.Unreported {
				count++
			}
		}
		return count
	}
	if n := unreported(here, false); n != 0 {
		t.Errorf("without judging %d are to be reported", n)
	}
	if n := unreported(there, true) + unreported(here, true) + unreported(there, true); n != 1 {
		t.Errorf("the end is to be reported %d times", n)
	}
	r.pass(time.Second)
	r.want(r.alive(killed, here, there)) // back after an interruption
	r.pass(redisstore.RunSilence + time.Second)
	pulse(t, here)
	pulse(t, there)
	if n := unreported(here, true) + unreported(there, true); n != 1 {
		t.Errorf("its next end is to be reported %d times", n)
	}
}

// A coordinator in a crash loop leaves a bounded number of fields.
func TestACrashLoopIsBounded(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here := r.coordinator("here")
	for i := range 130 {
		r.alive(r.coordinator(fmt.Sprint("run-", i)))
		r.pass(time.Second)
	}
	r.pass(redisstore.RunSilence)
	ends := r.alive(here)
	if len(ends) != 100 || ends[0] != "run-129" {
		t.Errorf("%d ends are told, the latest %s", len(ends), ends[0])
	}
	if fields, err := r.server.HKeys("msghandler:{00b}:runs"); err != nil || len(fields) != 101 {
		t.Errorf("%d fields are kept, %v", len(fields), err)
	}
}

// A real Redis, because script flags and the types of replies differ from the embedded Redis.
func TestRunsAreNotedInARealRedis(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 2, Instance: "here"})
	key := "msghandler:{00b}:runs"
	if err := client.HSet(t.Context(), key, "killed/1", time.Now().Add(-time.Minute).UnixMilli()).Err(); err != nil {
		t.Fatal(err)
	}
	ends, err := store.NoteRun(t.Context(), true)
	if err != nil || len(ends) != 1 || ends[0].Instance != "killed" ||
		time.Since(ends[0].LastSeenAt).Round(time.Minute) != time.Minute {
		t.Errorf("told are %+v, %v", ends, err)
	}
	if ttl := client.TTL(t.Context(), key).Val(); ttl <= 0 {
		t.Errorf("the key never expires: %v", ttl)
	}
	if err := store.NoteCleanStop(t.Context()); err != nil {
		t.Error(err)
	}
	if left := client.HLen(t.Context(), key).Val(); left != 1 {
		t.Errorf("after the stop %d runs are noted", left)
	}
}
