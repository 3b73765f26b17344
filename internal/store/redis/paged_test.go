package redis_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

const base = "msghandler:{00}:orders:"

// later is a message that is not asked about soon.
func later(id string) halfmsg.Message {
	m := half(id)
	m.ConfirmAfter = time.Hour
	return m
}

// lapse makes all pages due.
func lapse(t *testing.T, client *redis.Client) {
	t.Helper()
	for _, page := range client.ZRange(t.Context(), base+"pages", 0, -1).Val() {
		client.ZAdd(t.Context(), base+"pages", redis.Z{Score: 1, Member: page})
	}
}

// finishPages has a store index what is left of the pages that are due.
func finishPages(t *testing.T, store *redisstore.Store) {
	t.Helper()
	if claims, err := store.ClaimPending(t.Context(), map[string]int{"another": 1}, time.Minute); err != nil ||
		len(claims) > 0 {
		t.Fatalf("claimed %v, %v", claims, err)
	}
}

// ack ends messages as their owner.
func ack(t *testing.T, store *redisstore.Store, claims ...halfmsg.Claim) {
	t.Helper()
	var settlements []halfmsg.Settlement
	for _, c := range claims {
		settlements = append(settlements, halfmsg.Settlement{
			Name: c.Name, Token: c.Token, Fingerprint: c.Fingerprint, Event: halfmsg.EventAcked,
		})
	}
	for i, r := range store.Settle(t.Context(), settlements) {
		if r.Err != nil || r.State != halfmsg.Done {
			t.Fatalf("acked %s: %s, %v", claims[i].Name, r.State, r.Err)
		}
	}
}

// indexKeys are the keys of indexes, leases and verdicts.
func indexKeys(t *testing.T, client *redis.Client) []string {
	t.Helper()
	return slices.DeleteFunc(client.Keys(t.Context(), base+"*").Val(), func(key string) bool {
		part := strings.TrimPrefix(key, base)
		return strings.HasPrefix(part, "m:") || strings.HasSuffix(part, ":cells") || strings.HasPrefix(part, "page")
	})
}

func TestAnOrdinaryMessageIsNeverIndexed(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	for _, by := range []*redisstore.Store{store, other} { // other has to read what it claims
		create(t, store, later("1"), later("2"))
		claims := submit(t, by, later("1").Name, later("2").Name)
		for _, c := range claims {
			if string(c.Body) != "body of "+c.ID || c.CreatedAt.IsZero() || c.Fingerprint == "" {
				t.Errorf("claimed as %+v", c)
			}
		}
		settle(t, by, halfmsg.EventCommitted, time.Minute, claims...)
		if r, err := store.Get(t.Context(), later("1").Name); err != nil || r.State != halfmsg.Sendable ||
			!r.CreatedAt.Equal(claims[0].CreatedAt) || r.SendableAt.IsZero() || r.LeaseOwner == "" {
			t.Errorf("read as %+v, %v", r, err)
		}
		if keys := indexKeys(t, client); len(keys) > 0 {
			t.Errorf("indexed: %v", keys)
		}
		ack(t, by, claims...)
		if left := client.Keys(t.Context(), base+"*").Val(); len(left) != 2 {
			t.Errorf("left besides the receipts: %v", left)
		}
		client.Del(t.Context(), base+"m:1", base+"m:2")
	}
}

func TestRestOfPageIsIndexed(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler", Instance: "other"})
	create(t, store, later("waits"), later("owned"), later("committed"), later("done"))
	owned := submit(t, store, later("owned").Name)
	committed := submit(t, store, later("committed").Name, later("done").Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, committed...)
	ack(t, store, committed[1])
	lapse(t, client)
	finishPages(t, other)

	if left := client.Keys(t.Context(), base+"*cells").Val(); len(left) > 0 {
		t.Errorf("cells are left: %v", left)
	}
	for id, want := range map[string]halfmsg.State{
		"waits": halfmsg.Pending, "owned": halfmsg.Pending, "committed": halfmsg.Sendable, "done": halfmsg.Done,
	} {
		r, err := other.Get(t.Context(), half(id).Name)
		if err != nil || r.State != want || (id == "owned" || id == "committed") != (r.LeaseOwner != "") {
			t.Errorf("%s: %+v, %v", id, r, err)
		}
		if id == "waits" && time.Until(r.DueAt) < 50*time.Minute {
			t.Errorf("%s is due %s", id, r.DueAt)
		}
	}
	if repairs := sweep(t, other); repairs.Made > 0 {
		t.Errorf("%d repairs", repairs.Made)
	}
	// Owners keep what they have.
	settle(t, store, halfmsg.EventCommitted, time.Minute, owned...)
	ack(t, store, owned[0], committed[0])
}

func TestNextOwnerKnowsLastOwnersCopy(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler", Instance: "other"})
	create(t, store, later("1"))
	claims := submit(t, store, later("1").Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	lapse(t, client)
	finishPages(t, other)
	client.ZAddXX(t.Context(), base+"sendable", redis.Z{Score: 1, Member: "1"}) // the lease has ended
	taken, err := other.ClaimSendable(t.Context(), 1, time.Minute)
	if err != nil || len(taken) != 1 || taken[0].Copies != 1 || !taken[0].CreatedAt.Equal(claims[0].CreatedAt) {
		t.Fatalf("taken over as %+v, %v", taken, err)
	}
	if r := word(t, store, halfmsg.EventAcked, 0, claims...)[0]; r.Err == nil {
		t.Error("the owner without a lease ended the message")
	}
}

// TestEndedShortLeaseIsFound: a page falls due after seconds, so a message with a shorter lease must not stay in
// it.
func TestEndedShortLeaseIsFound(t *testing.T) {
	t.Parallel()
	store, _, _ := fresh(t, redisstore.Config{})
	create(t, store, later("1"), later("2"))
	claims := submit(t, store, later("2").Name)
	if r := store.Submit(t.Context(), []halfmsg.Name{later("1").Name}, time.Millisecond)[0]; r.Claim == nil {
		t.Fatal("not claimed")
	}
	settle(t, store, halfmsg.EventCommitted, time.Millisecond, claims...)
	eventually(t, func() bool {
		pending, err := store.ClaimPending(t.Context(), map[string]int{"orders": 9}, time.Minute)
		return err == nil && len(pending) == 1
	})
	eventually(t, func() bool {
		sendable, err := store.ClaimSendable(t.Context(), 9, time.Minute)
		return err == nil && len(sendable) == 1
	})
}

// eventually waits for what takes milliseconds.
func eventually(t *testing.T, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		if happened() {
			return
		}
	}
	t.Error("the move has not happened")
}

// TestLostRecordLeavesNothingBehind has a new message under the name of a lost one that was owned and had
// its verdict.
func TestLostRecordLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, later("1"))
	lost := submit(t, store, later("1").Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, lost...)
	client.Del(t.Context(), base+"m:1")
	client.HSet(t.Context(), base+"x:1", "confirms", 3)
	create(t, store, later("1"))
	if r := word(t, store, halfmsg.EventAcked, 0, lost...)[0]; r.Err == nil {
		t.Error("the owner of the lost message ended the new one")
	}
	claim := submit(t, store, later("1").Name)[0]
	if claim.ConfirmAttempts != 0 || claim.Copies != 1 {
		t.Errorf("claimed as %+v, want a single copy that may be out, and no attempts", claim)
	}
}

func TestOneNameTwiceInABatch(t *testing.T) {
	t.Parallel()
	store, _, _ := fresh(t, redisstore.Config{})
	first, second := later("1"), later("1")
	second.Body = []byte("other content")
	results := store.Create(t.Context(), []halfmsg.Message{first, second, later("2")})
	if results[0].Err != nil || results[1].Err == nil || results[2].Err != nil {
		t.Errorf("stored with %v", results)
	}
	if r, err := store.Get(t.Context(), first.Name); err != nil || string(r.Body) != string(first.Body) {
		t.Errorf("read as %+v, %v", r, err)
	}
}

// TestListSpansPagesAndIndexes lists messages of which some are paged and some indexed, while pages fall due.
func TestListSpansPagesAndIndexes(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	random := rand.New(rand.NewPCG(1, 2))
	want := map[string]bool{}
	for i := range 300 {
		id := fmt.Sprint(random.Uint32())
		create(t, store, later(id))
		want[id] = true
		if random.IntN(3) == 0 {
			store.Retry(t.Context(), []halfmsg.Name{later(id).Name}, "", "") // which indexes it
		}
		if i%5 == 0 {
			ack(t, store, finished(t, store, later("done-"+id))...)
		}
	}
	for _, limit := range []int{1, 7, 50, 1000} {
		seen, query := map[string]bool{}, halfmsg.Query{State: halfmsg.Pending, Limit: limit}
		last := time.Time{}
		for pages := 0; ; pages++ {
			page, err := store.List(t.Context(), query)
			must.Succeed(t, err)
			for _, r := range page.Records {
				if seen[r.ID] || r.CreatedAt.Before(last) {
					t.Fatalf("pages of %d list %s twice, or out of order", limit, r.Name)
				}
				seen[r.ID], last = true, r.CreatedAt
			}
			if query.Cursor = page.Next; query.Cursor == "" {
				break
			}
			if limit == 7 && pages == 20 {
				lapse(t, client)
				finishPages(t, store)
			}
		}
		if len(seen) != len(want) {
			t.Errorf("pages of %d list %d of %d", limit, len(seen), len(want))
		}
	}
}

// finished is a message up to its publish.
func finished(t *testing.T, store *redisstore.Store, m halfmsg.Message) []halfmsg.Claim {
	t.Helper()
	create(t, store, m)
	claims := submit(t, store, m.Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	return claims
}
