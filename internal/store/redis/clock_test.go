package redis_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/peers"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// clocked is a Redis whose clock the test sets, with coordinators that count in the pulse.
type clocked struct {
	*testing.T
	server *miniredis.Miniredis
	start  time.Time
	store  *redisstore.Store
}

func newClocked(t *testing.T) *clocked {
	t.Helper()
	c := &clocked{T: t, server: miniredis.RunT(t), start: time.UnixMilli(1_800_000_000_000)}
	c.server.SetTime(c.start)
	c.store = c.coordinator("one")
	return c
}

func (c *clocked) coordinator(name string) *redisstore.Store {
	c.Helper()
	return open(c.T, redisstore.Config{
		URL: "redis://" + c.server.Addr(), Prefix: "msghandler", Shards: 1, Instance: name, LongestWait: 10 * time.Minute,
	})
}

// at sets the clock to so long after the start.
func (c *clocked) at(d time.Duration) { c.server.SetTime(c.start.Add(d)) }

// jump counts in the pulse and returns by how much the clock has jumped.
func (c *clocked) jump(store *redisstore.Store) time.Duration {
	c.Helper()
	found, err := store.Pulse(c.Context())
	if err != nil || len(found.Regressions) > 0 {
		c.Fatalf("found %+v, %v", found, err)
	}
	if len(found.ClockJumps) == 0 {
		return 0
	}
	return found.ClockJumps[0].By
}

// due are the ids that another coordinator can claim.
func (c *clocked) due() map[string]bool {
	c.Helper()
	other, due := c.coordinator("other"), map[string]bool{}
	pending, err := other.ClaimPending(c.Context(), map[string]int{"orders": 10}, time.Minute)
	sendable, more := other.ClaimSendable(c.Context(), 10, time.Minute)
	acknowledged, most := other.ClaimAcknowledged(c.Context(), 10, time.Minute)
	if err = errors.Join(err, more, most); err != nil {
		c.Fatal(err)
	}
	for _, claim := range slices.Concat(pending, sendable, acknowledged) {
		due[claim.ID] = true
	}
	return due
}

// waiting is a message that begins to wait. The message "old" is there since before the clock jumps.
type waiting struct {
	name string
	id   string
	// within is when the message is due at the latest, once the clock is right again.
	within time.Duration
	begin  func(t *testing.T, store *redisstore.Store)
}

func waitings() []waiting {
	wait := func(t *testing.T, store *redisstore.Store, event halfmsg.Event, after time.Duration, name halfmsg.Name) {
		t.Helper()
		claim := submit(t, store, name)[0]
		r := store.Settle(t.Context(), []halfmsg.Settlement{{Name: name, Token: claim.Token, Event: event, After: after}})[0]
		if r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	fresh, old := half("1"), half("old")
	fresh.Delay, fresh.ConfirmAfter = 5*time.Second, 6*time.Second
	return []waiting{
		{"first Confirm", "1", 20 * time.Second, func(t *testing.T, store *redisstore.Store) { create(t, store, fresh) }},
		{"delay", "1", 20 * time.Second, func(t *testing.T, store *redisstore.Store) {
			create(t, store, fresh)
			wait(t, store, halfmsg.EventCommitted, fresh.Delay, fresh.Name)
		}},
		{"delay of an older message", "old", 20 * time.Second, func(t *testing.T, store *redisstore.Store) {
			wait(t, store, halfmsg.EventCommitted, 5*time.Second, old.Name)
		}},
		{"backoff of an older message", "old", 11 * time.Minute, func(t *testing.T, store *redisstore.Store) {
			wait(t, store, halfmsg.EventUnknown, 5*time.Minute, old.Name)
		}},
		{"deletion of a marker", "old", 11 * time.Minute, func(t *testing.T, store *redisstore.Store) {
			claims := submit(t, store, old.Name)
			settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
			settle(t, store, halfmsg.EventAckedMarked, time.Minute, claims...)
			r := store.Settle(t.Context(), []halfmsg.Settlement{{
				Name: old.Name, Token: claims[0].Token, Event: halfmsg.EventMarkerKept, After: time.Minute,
			}})[0]
			if r.Err != nil {
				t.Fatal(r.Err)
			}
		}},
		{"lease", "1", 11 * time.Minute, func(t *testing.T, store *redisstore.Store) {
			create(t, store, fresh)
			submit(t, store, fresh.Name)
		}},
		{"lease of an older message", "old", 11 * time.Minute, func(t *testing.T, store *redisstore.Store) {
			settle(t, store, halfmsg.EventCommitted, time.Minute, submit(t, store, old.Name)...)
		}},
	}
}

// TestClockJumpStopsNoMessage lets messages begin to wait before the clock is set back, or while it is ahead.
func TestClockJumpStopsNoMessage(t *testing.T) {
	t.Parallel()
	for _, jump := range []struct {
		name          string
		during, after time.Duration // the clock while the message begins to wait, and afterwards
	}{
		{"ahead for seconds", 3 * time.Hour, 3 * time.Second},
		{"ahead by less than the longest wait", 5 * time.Minute, 3 * time.Second},
		{"set back", 0, -2 * time.Hour},
	} {
		for _, w := range waitings() {
			t.Run(jump.name+"/"+w.name, func(t *testing.T) {
				t.Parallel()
				c, begun := newClocked(t), time.Now()
				create(t, c.store, half("old"))
				c.jump(c.store)
				c.at(jump.during)
				told := []time.Duration{c.jump(c.store)}
				w.begin(t, c.store)
				c.at(jump.after)
				told = append(told, c.jump(c.store), c.jump(c.store))
				for i, want := range []time.Duration{jump.during, jump.after - jump.during, 0} {
					// What has passed of this process's own time counts too.
					if (told[i] - want).Abs() > time.Since(begun)+5*time.Second {
						t.Errorf("jump %d: told is %v, want %v", i, told[i], want)
					}
				}
				sweep(t, c.store)
				finishPages(t, c.store)
				sweep(t, c.store)
				c.at(jump.after + w.within)
				if due := c.due(); !due[w.id] {
					record, err := c.store.Get(t.Context(), halfmsg.Name{Producer: "orders", ID: w.id})
					t.Errorf("not due after %v: due in %v, created %v ago, %v", w.within,
						record.DueAt.Sub(c.start.Add(jump.after+w.within)), c.start.Add(jump.after+w.within).Sub(record.CreatedAt), err)
				}
			})
		}
	}
}

// TestSubmitClaimsWhenLeaseHasEnded has a Submit meet the lease of another coordinator, and its end.
func TestSubmitClaimsWhenLeaseHasEnded(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	create(t, c.store, half("1"))
	names, lease, other := []halfmsg.Name{half("1").Name}, 2*time.Second, c.coordinator("other")
	for _, s := range []struct {
		at      time.Duration
		by      *redisstore.Store
		claimed bool
	}{{0, c.store, true}, {lease - time.Millisecond, other, false}, {lease, other, true}} {
		c.at(s.at)
		if got := s.by.Submit(t.Context(), names, lease)[0]; got.Err != nil || (got.Claim != nil) != s.claimed {
			t.Errorf("after %v: claimed %t, %v", s.at, got.Claim != nil, got.Err)
		}
	}
}

// TestStartAfterReportedJumpReportsNone starts coordinators while the counts of others are ahead of the clock.
func TestStartAfterReportedJumpReportsNone(t *testing.T) {
	t.Parallel()
	for _, stays := range []bool{true, false} {
		t.Run(fmt.Sprint("one stays: ", stays), func(t *testing.T) {
			t.Parallel()
			c := newClocked(t)
			c.jump(c.store)
			c.at(24 * time.Hour)
			c.jump(c.store)
			c.at(2 * time.Second)
			if stays {
				c.jump(c.store) // reports the jump back
			} else if got := c.jump(c.coordinator("first")); got > -23*time.Hour {
				t.Errorf("the first to start reports %v", got)
			}
			for i := range 3 {
				c.at(time.Duration(3+i) * time.Second)
				if stays {
					c.jump(c.store)
				}
				if got := c.jump(c.coordinator("late")); got != 0 {
					t.Errorf("start %d reports a jump by %v", i, got)
				}
			}
			c.at(-time.Hour)
			if got := c.jump(c.coordinator("later")); got > -59*time.Minute {
				t.Errorf("after another jump back a start reports %v", got)
			}
		})
	}
}

// TestRightDueTimesOutliveClockJump has messages whose long waits began while the clock was right.
func TestRightDueTimesOutliveClockJump(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	late, delayed := half("late"), half("delayed")
	late.ConfirmAfter, delayed.Delay = 5*time.Hour, 5*time.Hour
	create(t, c.store, late, delayed)
	claim := submit(t, c.store, delayed.Name)[0]
	c.store.Settle(t.Context(), []halfmsg.Settlement{{
		Name: claim.Name, Token: claim.Token, Event: halfmsg.EventCommitted, After: delayed.Delay,
	}})
	for _, clock := range []time.Duration{0, 3 * time.Hour, 10 * time.Second, 20 * time.Second} {
		c.at(clock)
		c.jump(c.store)
		finishPages(t, c.store)
		if repairs := sweep(t, c.store); repairs.Made > 0 {
			t.Errorf("%d repairs at %v", repairs.Made, clock)
		}
	}
	c.at(5*time.Hour - time.Minute)
	if due := c.due(); len(due) > 0 {
		t.Errorf("due too early: %v", due)
	}
	c.at(5*time.Hour + time.Second)
	if due := c.due(); len(due) != 2 {
		t.Errorf("due are %v", due)
	}
}

// A master that was behind has become the master: messages created by the old one's clock may have been published.
func TestMasterBehindFlagsRestoredMessages(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	create(t, c.store, half("1"))
	c.jump(c.store)
	lost, err := c.server.DB(0).HKeys("msghandler:{00}:pulse")
	must.Succeed(t, err)
	for _, field := range lost {
		if field != "generation" {
			c.server.HSet("msghandler:{00}:pulse", field, "1")
		}
	}
	c.at(-time.Minute)
	if claim := submit(t, c.store, half("1").Name)[0]; claim.Copies != 1 {
		t.Errorf("claimed with %d copies counted", claim.Copies)
	}
}

func TestLongestLeaseOutlivesSmallStep(t *testing.T) {
	t.Parallel()
	for _, indexed := range []bool{false, true} {
		server := miniredis.RunT(t)
		now := time.UnixMilli(1_800_000_000_000)
		server.SetTime(now)
		store := open(t, storing(indexed, redisstore.Config{URL: "redis://" + server.Addr(), Prefix: "msghandler"}))
		create(t, store, half("1"))
		claim := store.Submit(t.Context(), []halfmsg.Name{half("1").Name}, time.Hour)[0].Claim
		server.SetTime(now.Add(-5 * time.Millisecond))
		settle(t, store, halfmsg.EventCommitted, time.Minute, *claim)
	}
}

// A coordinator that starts while the clock is a day ahead must not take the others for gone.
func TestClockAheadRaisesNoAlarm(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	c.jump(c.store)
	c.at(25 * time.Hour)
	c.jump(c.coordinator("ahead"))
	c.jump(c.store) // fails on a regression
	create(t, c.store, half("1"))
	c.at(25*time.Hour + retention + time.Second)
	create(t, c.store, half("2"))
	if claim := submit(t, c.store, half("2").Name)[0]; claim.Copies != 0 {
		t.Errorf("claimed with %d copies counted", claim.Copies)
	}
}

// Receipts end too early when the clock jumps forward. A repeated SendHalfMessage then stores the message again.
func TestRepeatAfterLostReceiptIsFlagged(t *testing.T) {
	t.Parallel()
	c := newClocked(t)
	create(t, c.store, half("1"))
	c.jump(c.store)
	claims := submit(t, c.store, half("1").Name)
	settle(t, c.store, halfmsg.EventCommitted, time.Minute, claims...)
	settle(t, c.store, halfmsg.EventAcked, 0, claims...)
	c.at(3 * time.Hour)
	c.server.FastForward(3 * time.Hour) // ends the receipt
	c.jump(c.store)
	create(t, c.store, half("1"), half("2"))
	if claim := submit(t, c.store, half("1").Name)[0]; claim.Copies != 1 {
		t.Errorf("repeated: %d copies counted", claim.Copies)
	}
	c.at(4 * time.Second)
	c.jump(c.store)
	c.at(retention + 10*time.Second)
	create(t, c.store, half("3"))
	if claim := submit(t, c.store, half("3").Name)[0]; claim.Copies != 0 {
		t.Errorf("long after the jump: %d copies counted", claim.Copies)
	}
}

// The clock must not make a living coordinator look dead, nor a dead one look alive.
func TestClockJumpHidesNoEnd(t *testing.T) {
	t.Parallel()
	r := newRuns(t)
	one, two := r.coordinator("one"), r.coordinator("two")
	r.alive(one, two)
	r.pass(30 * time.Minute)
	r.want(ended(r.share(one, peers.Text{}, true))) // before it has counted
	r.alive(one, two)
	r.pass(-30 * time.Minute)
	r.want(r.alive(one, two, r.coordinator("three")))
}
