package redis_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// endLease makes the lease in a cell end in the past, while the message is still paged.
func endLease(t *testing.T, client *redis.Client, state halfmsg.State, id string) {
	t.Helper()
	key := base + state.String() + ":cells"
	cell := client.HGet(t.Context(), key, id).Val()
	if len(cell) < 42 {
		t.Fatalf("the cell of %s is %q", id, cell)
	}
	past := time.Now().Add(-time.Second).UnixMilli()
	client.HSet(t.Context(), key, id, fmt.Sprintf("%s %d%s", cell[:13], past, cell[27:]))
}

func TestEndedLeaseMovesNoPagedMessage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state halfmsg.State
		event halfmsg.Event
	}{
		"commit":   {halfmsg.Pending, halfmsg.EventCommitted},
		"rollback": {halfmsg.Pending, halfmsg.EventRolledBack},
		"ack":      {halfmsg.Sendable, halfmsg.EventAcked},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, client, _ := fresh(t, redisstore.Config{})
			create(t, store, later("1"))
			claims := submit(t, store, later("1").Name)
			if test.state == halfmsg.Sendable {
				settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
			}
			endLease(t, client, test.state, "1")
			r := store.Settle(t.Context(), []halfmsg.Settlement{{
				Name: claims[0].Name, Token: claims[0].Token, Fingerprint: claims[0].Fingerprint, Event: test.event,
				Hold: time.Minute,
			}})[0]
			if !errors.Is(r.Err, halfmsg.ErrLeaseLost) || r.State != test.state {
				t.Errorf("the message is %s, %v", r.State, r.Err)
			}
			if got, err := store.Get(t.Context(), claims[0].Name); err != nil || got.State != test.state {
				t.Errorf("the message was moved to %s, %v", got.State, err)
			}
		})
	}
}

// TestOtherOwnersTokenMovesNothing has a message discarded and sent again while its owner works on it.
func TestOtherOwnersTokenMovesNothing(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	for i, event := range []halfmsg.Event{halfmsg.EventCommitted, halfmsg.EventRolledBack, halfmsg.EventAcked} {
		m := later(fmt.Sprint(i))
		create(t, store, m)
		old := submit(t, store, m.Name)
		store.Discard(t.Context(), []halfmsg.Name{m.Name}, halfmsg.None)
		create(t, store, m)
		now := submit(t, store, m.Name)
		state := halfmsg.Pending
		if event == halfmsg.EventAcked {
			settle(t, store, halfmsg.EventCommitted, time.Minute, now...)
			state = halfmsg.Sendable
		}
		if !client.HExists(t.Context(), base+state.String()+":cells", m.ID).Val() {
			t.Fatalf("%s has no cell", m.Name)
		}
		r := store.Settle(t.Context(), []halfmsg.Settlement{{
			Name: m.Name, Token: old[0].Token, Fingerprint: old[0].Fingerprint, Event: event, Hold: time.Minute,
		}})[0]
		if !errors.Is(r.Err, halfmsg.ErrLeaseLost) || r.State != state {
			t.Errorf("%s by the old owner: %s, %v", event, r.State, r.Err)
		}
	}
}

// TestIndexedMessageInheritsNothingFromPage leaves the owner, the verdict and the attempts of a lost message.
func TestIndexedMessageInheritsNothingFromPage(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	client.HSet(t.Context(), base+"leases", "1", "one/00000000.1")
	client.HSet(t.Context(), base+"verdicts", "1", 1795466788616)
	client.HSet(t.Context(), base+"x:1", "confirms", 3, "copies", 2, "hurry", 1)
	m := half("1")
	m.ConfirmAfter = 10 * time.Millisecond
	create(t, store, m)
	if !client.HExists(t.Context(), base+"pending:cells", "1").Val() {
		t.Fatal("the message is not paged")
	}
	var claims []halfmsg.Claim
	eventually(t, func() bool {
		claims, _ = store.ClaimPending(t.Context(), map[string]int{"orders": 9}, time.Minute)
		return len(claims) > 0
	})
	r, err := store.Get(t.Context(), m.Name)
	if err != nil || claims[0].ConfirmAttempts != 0 || claims[0].Copies != 0 || !r.SendableAt.IsZero() ||
		len(r.Timeline) > 0 {
		t.Errorf("claimed as %+v; the record is %+v, %v", claims[0], r, err)
	}
}

// TestShortlyLeasedMessageLeavesItsPage: a page falls due after seconds, and no loop would find the message before.
func TestShortlyLeasedMessageLeavesItsPage(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, later("submitted"), later("committed"), later("trusted"))
	store.Submit(t.Context(), []halfmsg.Name{later("submitted").Name}, 2*time.Second)
	store.SubmitTrusted(t.Context(), []halfmsg.Name{later("trusted").Name}, 2*time.Second)
	settle(t, store, halfmsg.EventCommitted, 2*time.Second, submit(t, store, later("committed").Name)...)
	for _, state := range []string{"pending", "sendable"} {
		if left := client.HKeys(t.Context(), base+state+":cells").Val(); len(left) > 0 {
			t.Errorf("%s is still in a page", left)
		}
	}
}

// TestPagedMessagesCountForTheQuota has a batch of which some fit.
func TestPagedMessagesCountForTheQuota(t *testing.T) {
	t.Parallel()
	store, _, _ := fresh(t, redisstore.Config{Quota: fixed(10)})
	create(t, store, later("0"), later("1"), later("2"), later("3"))
	settle(t, store, halfmsg.EventCommitted, time.Minute, submit(t, store, later("0").Name, later("1").Name)...)
	create(t, store, later("4"), later("5"), later("6"), later("7"))
	var over int
	for _, r := range store.Create(t.Context(), []halfmsg.Message{later("8"), later("9"), later("10"), later("11")}) {
		if errors.Is(r.Err, halfmsg.ErrOverQuota) {
			over++
		}
	}
	if over != 2 {
		t.Errorf("%d of 4 messages are over the quota, want 2", over)
	}
	if r := store.Create(t.Context(), []halfmsg.Message{later("0")})[0]; r.Err != nil || r.State != halfmsg.Sendable {
		t.Errorf("a repeated call over the quota: %s, %v", r.State, r.Err)
	}
}

func TestRepeatedNameIsClaimedOnce(t *testing.T) {
	t.Parallel()
	store, _, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	create(t, store, later("1"), later("2"))
	for _, names := range [][]halfmsg.Name{{later("1").Name, later("1").Name}, {later("2").Name, later("2").Name}} {
		way := other.SubmitTrusted
		if names[0].ID == "1" {
			way = other.Submit
		}
		results := way(t.Context(), names, time.Minute)
		var claims int
		for _, r := range results {
			if r.Claim != nil {
				claims++
			}
		}
		if claims != 1 {
			t.Errorf("%s was claimed %d times", names[0], claims)
		}
	}
}

// TestTrustedPagedSubmitKeepsItsDelay: the coordinator that stored the message, and another.
func TestTrustedPagedSubmitKeepsItsDelay(t *testing.T) {
	t.Parallel()
	store, _, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	for i, by := range []*redisstore.Store{store, other} {
		m := later(fmt.Sprint(i))
		m.Delay = time.Hour
		create(t, store, m)
		r := by.SubmitTrusted(t.Context(), []halfmsg.Name{m.Name}, time.Minute)[0]
		if r.Err != nil || r.State != halfmsg.Sendable || r.Claim != nil && r.Claim.Token != "" {
			t.Errorf("%s: %+v", m.Name, r)
		}
		if got, err := store.Get(t.Context(), m.Name); err != nil || time.Until(got.DueAt) < 50*time.Minute {
			t.Errorf("%s is due %s, %v", m.Name, got.DueAt, err)
		}
	}
}

func TestPagedSubmitIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	store, _, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	random := rand.NewChaCha8([32]byte{})
	var names []halfmsg.Name
	for i := range 40 {
		m := later(fmt.Sprint(i))
		m.Body = make([]byte, 1<<20)
		_, _ = random.Read(m.Body)
		create(t, store, m)
		names = append(names, m.Name)
	}
	bytes := 0
	for _, r := range other.Submit(t.Context(), names, time.Minute) {
		if r.Claim != nil {
			bytes += len(r.Claim.Body)
		}
	}
	if bytes > 35<<20 || bytes < 16<<20 {
		t.Errorf("a single Submit has claimed %d MiB", bytes>>20)
	}
}

// TestPassesFinishAllDuePages: a message behind many others is found, too. How much one pass does depends on
// time.
func TestPassesFinishAllDuePages(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	var messages []halfmsg.Message
	for i := range 1500 {
		messages = append(messages, later(fmt.Sprint(i)))
	}
	create(t, store, messages...)
	lapse(t, client)
	eventually(t, func() bool {
		finishPages(t, store)
		return client.HLen(t.Context(), base+"pending:cells").Val() == 0
	})
	if indexed := client.ZCard(t.Context(), base+"pending").Val(); indexed != 1500 {
		t.Errorf("%d are indexed", indexed)
	}
	if pages := client.Keys(t.Context(), base+"page*").Val(); len(pages) > 0 {
		t.Errorf("left: %v", pages)
	}
}

func TestReceiptsOfPagedMessagesExpire(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	ack(t, store, finished(t, store, later("done"))...)
	create(t, store, later("rolled_back"))
	c := submit(t, store, later("rolled_back").Name)[0]
	store.Settle(t.Context(), []halfmsg.Settlement{{
		Name: c.Name, Token: c.Token, Fingerprint: c.Fingerprint, Event: halfmsg.EventRolledBack,
	}})
	for _, id := range []string{"done", "rolled_back"} {
		if ttl := client.TTL(t.Context(), base+"m:"+id).Val(); ttl <= retention-time.Minute || ttl > retention {
			t.Errorf("the receipt of %s expires in %s", id, ttl)
		}
		if r, err := store.Get(t.Context(), later(id).Name); err != nil || r.State.String() != id {
			t.Errorf("%s is %s, %v", id, r.State, err)
		}
	}
	if left := client.SCard(t.Context(), "msghandler:{00}:producers").Val(); left != 0 {
		t.Error("the producer without messages is still listed")
	}
}

// TestTooLongPagedLeaseHasEnded: a clock that jumped has set it.
func TestTooLongPagedLeaseHasEnded(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, later("1"))
	claims := submit(t, store, later("1").Name)
	cell := client.HGet(t.Context(), base+"pending:cells", "1").Val()
	client.HSet(t.Context(), base+"pending:cells", "1",
		fmt.Sprintf("%s %d%s", cell[:13], time.Now().Add(2*time.Hour).UnixMilli(), cell[27:]))
	if r := word(t, store, halfmsg.EventCommitted, time.Minute, claims...)[0]; !errors.Is(r.Err, halfmsg.ErrLeaseLost) {
		t.Errorf("the message is %s, %v", r.State, r.Err)
	}
}

// TestFinishedMessagesCellIsNotClaimed leaves a cell beside a receipt.
func TestFinishedMessagesCellIsNotClaimed(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	create(t, store, later("1"))
	client.Set(t.Context(), base+"m:1", "done 1795466788616 digest", time.Hour)
	for _, r := range other.Submit(t.Context(), []halfmsg.Name{later("1").Name}, time.Minute) {
		if r.Claim != nil {
			t.Errorf("claimed as %+v", r.Claim)
		}
	}
	if r, err := other.Get(t.Context(), later("1").Name); err != nil || r.State != halfmsg.Done {
		t.Errorf("the message is %s, %v", r.State, err)
	}
}

// TestPageIsDueWithFirstMessage has messages with different due times created in one page, in either order.
func TestPageIsDueWithFirstMessage(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	soon := half("soon")
	soon.ConfirmAfter = 100 * time.Millisecond
	for _, messages := range [][]halfmsg.Message{{soon, later("1")}, {later("1"), soon}} {
		store, redis := embeddedStore(t, redisstore.Config{})
		redis.SetTime(now)
		create(t, store, messages[0])
		create(t, store, messages[1])
		due, err := redis.ZScore(base+"pages", fmt.Sprint(now.UnixMilli()/250))
		if err != nil || int64(due) != now.UnixMilli()+100 {
			t.Errorf("%s first: the page is due after %d ms, %v", messages[0].ID, int64(due)-now.UnixMilli(), err)
		}
	}
}

// TestVerdictOfPagedMessageIsKept when it is trusted, and when its page falls due.
func TestVerdictOfPagedMessageIsKept(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler", Instance: "other"})
	create(t, store, later("trusted"), later("committed"))
	r := store.SubmitTrusted(t.Context(), []halfmsg.Name{later("trusted").Name}, time.Minute)[0]
	if r.Claim == nil || r.Claim.SendableAt.IsZero() {
		t.Fatalf("claimed as %+v", r.Claim)
	}
	settle(t, store, halfmsg.EventCommitted, time.Minute, submit(t, store, later("committed").Name)...)
	if !client.HExists(t.Context(), base+"sendable:cells", "trusted").Val() {
		t.Fatal("the message is not paged")
	}
	lapse(t, client)
	finishPages(t, store)
	for _, id := range []string{"trusted", "committed"} {
		got, err := store.Get(t.Context(), later(id).Name)
		if err != nil || got.SendableAt.IsZero() || got.CreatedAt.IsZero() || got.LeaseOwner == "" ||
			got.SendableAt.Before(got.CreatedAt) {
			t.Errorf("%s: %+v, %v", id, got, err)
		}
		client.ZAddXX(t.Context(), base+"sendable", redis.Z{Score: 1, Member: id}) // the lease has ended
	}
	claims, err := other.ClaimSendable(t.Context(), 9, time.Minute)
	if err != nil || len(claims) != 2 {
		t.Fatalf("claimed %v, %v", claims, err)
	}
	for _, c := range claims {
		if c.Copies != 1 || c.SendableAt.IsZero() {
			t.Errorf("taken over as %+v", c)
		}
	}
}

// TestSubmitLeavesPagedMessageToOwner: the repeated call of a client that never saw the answer goes to another
// coordinator.
func TestSubmitLeavesPagedMessageToOwner(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	create(t, store, later("1"))
	claims := submit(t, store, later("1").Name)
	if !client.HExists(t.Context(), base+"pending:cells", "1").Val() {
		t.Fatal("the message is not paged")
	}
	for _, by := range []*redisstore.Store{other, store} {
		if r := by.Submit(t.Context(), []halfmsg.Name{later("1").Name}, time.Minute)[0]; r.Err != nil || r.Claim != nil ||
			r.State != halfmsg.Pending {
			t.Errorf("submitted again: %+v", r)
		}
	}
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
}

func TestStatsCountPagedMessages(t *testing.T) {
	t.Parallel()
	store, _, _ := fresh(t, redisstore.Config{Shards: 2})
	create(t, store, later("1"), later("2"), of("billing", later("3")), later("4"))
	settle(t, store, halfmsg.EventCommitted, time.Minute, submit(t, store, later("4").Name)...)
	stats, err := store.Stats(t.Context())
	must.Succeed(t, err)
	for _, stat := range stats {
		want := map[halfmsg.State]int64{halfmsg.Pending: 3, halfmsg.Sendable: 1}[stat.State]
		if stat.Count != want || want > 0 && (stat.OldestAt.IsZero() || stat.FirstDueAt.IsZero()) {
			t.Errorf("%+v, want %d", stat, want)
		}
	}
}
