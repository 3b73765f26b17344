package redis_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/peers"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

const coordinatorsKey = "msghandler:{00b}:coordinators"

// silence is how long a coordinator must be silent to have ended.
const silence = 20 * time.Second

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

// share shares a report, and returns what the others have shared.
func (r *runs) share(store *redisstore.Store, own peers.Text, findEnds bool) []peers.Entry {
	r.t.Helper()
	entries, err := store.ShareReport(r.t.Context(), own, silence, findEnds)
	must.Succeed(r.t, err)
	return entries
}

// read describes what a coordinator reads of the others.
func (r *runs) read(store *redisstore.Store) (texts string) {
	r.t.Helper()
	for _, e := range r.share(store, peers.Text{Lasting: "{}"}, false) {
		texts += fmt.Sprintf("[%s %v %q %q %t]", e.Instance, e.Ago, e.Lasting, e.Passing, e.Stopped)
	}
	return texts
}

// ended names the coordinators that ended without a clean stop, the latest first.
func ended(entries []peers.Entry) (names []string) {
	for _, e := range entries {
		if e.Ended {
			names = append(names, e.Instance)
		}
	}
	return names
}

// alive has each report, count on in its pulse, and returns the ended coordinators as seen by the last.
func (r *runs) alive(all ...*redisstore.Store) (names []string) {
	r.t.Helper()
	for _, store := range all {
		pulse(r.t, store)
		names = ended(r.share(store, peers.Text{}, true))
	}
	return names
}

func (r *runs) want(got []string, want ...string) {
	r.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("ended without a clean stop are %v, want %v", got, want)
	}
}

// The counts of a coordinator end soon after its last report. Its description outlives it, because it may be missing.
func TestReportsExpireInTwoParts(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, there := r.coordinator("here"), r.coordinator("there")
	r.share(here, peers.Text{Lasting: "who", Passing: "counts"}, false)
	for _, step := range []struct {
		pass time.Duration
		want string
	}{
		{silence, `[here 20s "who" "counts" false]`},
		{time.Millisecond, `[here 20.001s "who" "" false]`},
		{peers.Memory - silence - time.Millisecond, `[here 1h0m0s "who" "" false]`},
		{time.Millisecond, ""},
	} {
		r.pass(step.pass)
		if got := r.read(there); got != step.want {
			t.Errorf("the others get %s, want %s", got, step.want)
		}
	}
	if fields, err := r.server.HKeys(coordinatorsKey); err != nil || len(fields) != 1 {
		t.Errorf("left are %v, %v", fields, err)
	}
	r.share(here, peers.Text{Lasting: "bye", Stopped: true}, false)
	if got := r.read(there); got != `[here 0s "bye" "" true]` {
		t.Errorf("of a stopped coordinator the others get %s", got)
	}
}

// After a failover to a host whose clock is behind, reports come from the future, and would not age for a long time.
func TestReportsAgeAfterClockSetBack(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, there := r.coordinator("here"), r.coordinator("there")
	r.share(here, peers.Text{Lasting: "who"}, false)
	r.pass(-10 * time.Minute)
	if got := r.read(there); got != `[here 0s "who" "" false]` {
		t.Errorf("when the clock is set back the others get %s", got)
	}
	r.pass(time.Minute)
	if got := r.read(there); got != `[here 1m0s "who" "" false]` {
		t.Errorf("a minute later the others get %s", got)
	}
}

func TestOnlyUncleanEndsAreTold(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, killed, stopped := r.coordinator("here"), r.coordinator("killed"), r.coordinator("stopped")
	r.want(r.alive(stopped, killed, here))
	r.pass(time.Second)
	r.share(stopped, peers.Text{Stopped: true}, false)
	r.pass(silence - time.Second)
	r.want(r.alive(here)) // not ended yet
	r.pass(2 * time.Second)
	r.want(r.alive(here), "killed")

	next := r.coordinator("next") // hears of it at once
	r.want(r.alive(next), "killed")
	r.pass(time.Second)
	pulse(t, killed) // back after an interruption, before its next report
	r.want(r.alive(here))
	r.want(r.alive(killed, here))

	r.pass(peers.Memory - time.Second)
	r.want(r.alive(here), "killed", "next")
	r.pass(silence)
	r.want(r.alive(here))
	if fields, err := r.server.HKeys(coordinatorsKey); err != nil || len(fields) != 1 {
		t.Errorf("left are %v, %v", fields, err)
	}
}

// Many coordinators see an end, and a single coordinator reports the end. A coordinator that has just started cannot
// tell an end from an outage of Redis, so a new coordinator finds none, and takes no report away from the others.
func TestAnEndIsReportedOnce(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here, there, killed := r.coordinator("here"), r.coordinator("there"), r.coordinator("killed")
	r.want(r.alive(killed, here, there))
	r.pass(silence + time.Second)
	pulse(t, here)
	pulse(t, there)
	unreported := func(store *redisstore.Store, findEnds bool) (count int) {
		t.Helper()
		for _, e := range r.share(store, peers.Text{}, findEnds) {
			if e.Unreported {
				count++
			}
		}
		return count
	}
	if n := unreported(here, false); n != 0 {
		t.Errorf("without a search for ends %d are to be reported", n)
	}
	if n := unreported(there, true) + unreported(here, true) + unreported(there, true); n != 1 {
		t.Errorf("the end is to be reported %d times", n)
	}
	r.pass(time.Second)
	r.want(r.alive(killed, here, there)) // back after an interruption
	r.pass(silence + time.Second)
	pulse(t, here)
	pulse(t, there)
	if n := unreported(here, true) + unreported(there, true); n != 1 {
		t.Errorf("the next end is to be reported %d times", n)
	}
}

// A coordinator in a crash loop has a new name each time, and leaves a bounded number of reports.
func TestACrashLoopIsBounded(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	here := r.coordinator("here")
	for i := range peers.MaxReports + 30 {
		report := fmt.Sprintf("%d\nrunning\n{}\ncounts", r.now.UnixMilli())
		r.server.HSet(coordinatorsKey, fmt.Sprintf("run-%d/1", i), report)
		r.pass(time.Second)
	}
	r.server.HSet(coordinatorsKey, "broken/1", "no report")
	r.pass(silence)
	ends := r.alive(here)
	if len(ends) != peers.MaxReports-1 || ends[0] != fmt.Sprint("run-", peers.MaxReports+29) {
		t.Errorf("%d ends are told, the latest %s", len(ends), ends[0])
	}
	if fields, err := r.server.HKeys(coordinatorsKey); err != nil || len(fields) != peers.MaxReports {
		t.Errorf("%d reports are kept, %v", len(fields), err)
	}
}

// A real Redis, because script flags and the types of replies differ from the embedded Redis.
func TestReportsInARealRedis(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 2, Instance: "here"})
	report := fmt.Sprintf("%d\nrunning\nwho\ncounts", time.Now().Add(-time.Minute).UnixMilli())
	must.Succeed(t, client.HSet(t.Context(), coordinatorsKey, "killed/1", report).Err())
	entries, err := store.ShareReport(t.Context(), peers.Text{Lasting: "own"}, silence, true)
	if err != nil || len(entries) != 1 {
		t.Fatalf("told are %+v, %v", entries, err)
	}
	if e := entries[0]; e.Instance != "killed" || !e.Ended || !e.Unreported || e.Lasting != "who" || e.Passing != "" ||
		e.Unseen.Round(time.Minute) != time.Minute || e.Ago.Round(time.Minute) != time.Minute {
		t.Errorf("told is %+v", e)
	}
	if ttl := client.TTL(t.Context(), coordinatorsKey).Val(); ttl <= 0 || ttl > peers.Memory {
		t.Errorf("the key expires in %v", ttl)
	}
}

// The record of ended problems keeps the latest of a time by Redis's clock, and says when each entry was written.
func TestTheRecordOfProblemsIsBounded(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	store := r.coordinator("one")
	must.Succeed(t, store.RecordEnded(t.Context(), []string{"old"}))
	r.pass(peers.EndedMemory - time.Second)
	must.Succeed(t, store.RecordEnded(t.Context(), []string{"week"}))
	r.pass(2 * time.Second)
	must.Succeed(t, store.RecordEnded(t.Context(), []string{"new"}))
	if all, err := store.ReadEnded(t.Context(), time.UnixMilli(0)); err != nil || len(all) != 2 || all[1].Text != "week" {
		t.Errorf("of a week the record has %v, %v", all, err)
	}
	texts := make([]string, 2*peers.MaxEnded)
	for i := range texts {
		texts[i] = fmt.Sprint(i)
	}
	must.Succeed(t, store.RecordEnded(t.Context(), texts))
	entries, err := store.ReadEnded(t.Context(), time.UnixMilli(0))
	must.Succeed(t, err)
	if len(entries) != peers.MaxEnded || entries[0].Text != texts[len(texts)-1] ||
		entries[0].At.UnixMilli() != r.now.UnixMilli() {
		t.Errorf("the record has %d entries, the latest is %+v", len(entries), entries[0])
	}
	if entries, err = store.ReadEnded(t.Context(), r.now.Add(time.Second)); err != nil || len(entries) > 0 {
		t.Errorf("later entries are %v, %v", entries, err)
	}
	if left := r.server.TTL("msghandler:problems"); left != peers.EndedMemory {
		t.Errorf("the record expires in %v", left)
	}
}
