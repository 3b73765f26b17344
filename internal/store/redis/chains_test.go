package redis_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/storekeys"
)

// chained is a store on a miniredis with the messages 1 to 3 in a chain; 2 and 3 are committed.
type chained struct {
	*redisstore.Store
	t      *testing.T
	server *miniredis.Miniredis
	now    time.Time
	log    *servers.Log
	names  []halfmsg.Name
	claims []halfmsg.Claim
}

func newChain(t *testing.T, shards int) *chained {
	c := &chained{t: t, server: miniredis.RunT(t), log: &servers.Log{}, now: time.UnixMilli(1_800_000_000_000)}
	c.server.SetTime(c.now)
	c.Store = open(t, redisstore.Config{
		URL: "redis://" + c.server.Addr(), Prefix: "chain", Shards: shards, Logger: slog.New(slog.NewTextHandler(c.log, nil)),
	})
	for id := range 3 {
		m := halfmsg.Message{
			Name: halfmsg.Name{Producer: "orders", ID: fmt.Sprint(id + 1)}, OrderingKey: "customer-7", ConfirmAfter: time.Hour,
		}
		create(t, c.Store, m)
		c.names = append(c.names, m.Name)
		c.now = c.now.Add(time.Millisecond)
		c.server.SetTime(c.now)
	}
	c.claims = submit(t, c.Store, c.names...)
	settle(t, c.Store, halfmsg.EventCommitted, 0, c.claims[1:]...)
	return c
}

func (c *chained) advance(d time.Duration) {
	c.now = c.now.Add(d)
	c.server.SetTime(c.now)
	c.server.FastForward(d)
}

// wantOrder has the messages published until none is due, and wants these ids, one after the other.
func (c *chained) wantOrder(ids ...string) {
	c.t.Helper()
	var got []string
	for {
		claims, err := c.ClaimSendable(c.t.Context(), 10, time.Minute)
		must.Succeed(c.t, err)
		if len(claims) == 0 {
			break
		}
		if len(claims) > 1 {
			c.t.Fatalf("two in flight: %s and %s", claims[0].Name, claims[1].Name)
		}
		got = append(got, claims[0].ID)
		settle(c.t, c.Store, halfmsg.EventAcked, 0, claims...)
	}
	if strings.Join(got, " ") != strings.Join(ids, " ") {
		c.t.Errorf("published: %v, want %v", got, ids)
	}
}

func (c *chained) wantSound() {
	c.t.Helper()
	if wrong := storekeys.Read(c.server, "chain").Check(c.now); len(wrong) > 0 {
		c.t.Errorf("after the sweep: %s", strings.Join(wrong, "\n"))
	}
}

func TestChainDamageIsRepaired(t *testing.T) {
	t.Parallel()
	const base = "chain:{00}:orders:"
	for words, do := range map[string]func(c *chained){
		"due before its turn": func(c *chained) { _, _ = c.server.ZAdd(base+"sendable", 1, "3") },
		"first of its chain and not due": func(c *chained) {
			settle(c.t, c.Store, halfmsg.EventCommitted, 0, c.claims[0])
			_, _ = c.server.ZAdd(base+"sendable", 1<<52-1, "1")
		},
		"message without its place in its chain": func(c *chained) {
			c.server.Del(base + "keys")
			c.server.Del(base + "chain:customer-7")
		},
		"ordering key without record": func(c *chained) {
			c.server.HSet(base+"keys", "4", "customer-7")
			_, _ = c.server.ZAdd(base+"chain:customer-7", 1, "4")
		},
	} {
		t.Run(words, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, 1)
			do(c)
			if sweep(t, c.Store).Made == 0 || !strings.Contains(c.log.String(), "repaired: "+words) {
				t.Errorf("the log is\n%s", c.log)
			}
			c.wantSound()
			if sweep(t, c.Store).Made > 0 {
				t.Errorf("repaired again:\n%s", c.log)
			}
			if c.state("1") == halfmsg.Pending {
				settle(t, c.Store, halfmsg.EventCommitted, 0, c.claims[0])
			}
			c.wantOrder("1", "2", "3")
		})
	}
}

func (c *chained) state(id string) halfmsg.State {
	c.t.Helper()
	record, err := c.Get(c.t.Context(), halfmsg.Name{Producer: "orders", ID: id})
	must.Succeed(c.t, err)
	return record.State
}

// The record of the first message is lost: its successors go on.
func TestLostRecordHoldsNoChain(t *testing.T) {
	t.Parallel()
	c := newChain(t, 1)
	c.server.Del("chain:{00}:orders:m:1")
	sweep(t, c.Store)
	c.wantSound()
	c.wantOrder("2", "3")
}

// With several shards a pointer leads to each message of a chain, is written again where it is lost, and is removed
// after the receipt.
func TestPointersLeadToChains(t *testing.T) {
	t.Parallel()
	c := newChain(t, 7)
	pointers := func() (keys []string) {
		for _, key := range c.server.Keys() {
			if text, err := c.server.Get(key); err == nil && strings.HasPrefix(text, "keyed ") {
				keys = append(keys, key)
			}
		}
		return keys
	}
	written := pointers()
	if len(written) < 2 {
		t.Fatalf("the pointers are %v", written)
	}
	c.server.Del(written[0])
	sweep(t, c.Store)
	if got := pointers(); strings.Join(got, " ") != strings.Join(written, " ") {
		t.Errorf("the pointers are %v, want %v", got, written)
	}
	c.wantSound()
	settle(t, c.Store, halfmsg.EventCommitted, 0, c.claims[0])
	c.wantOrder("1", "2", "3")
	for _, id := range []string{"1", "2", "3"} {
		if got := c.state(id); got != halfmsg.Done {
			t.Errorf("%s is %v", id, got)
		}
	}
	sweep(t, c.Store)
	if got := pointers(); len(got) != len(written) {
		t.Errorf("the pointers are %v, want %v", got, written)
	}
	c.advance(retention + time.Minute)
	sweep(t, c.Store)
	if got := pointers(); len(got) > 0 {
		t.Errorf("pointers are left: %v", got)
	}
	c.wantSound()
}

// A pass costs the same, however long a held chain is.
func TestHeldChainCostsAPassNothing(t *testing.T) {
	t.Parallel()
	c := newChain(t, 1)
	var messages []halfmsg.Message
	for i := range 200 {
		messages = append(messages, halfmsg.Message{
			Name:        halfmsg.Name{Producer: "orders", ID: fmt.Sprint("held", i)},
			OrderingKey: "customer-7", ConfirmAfter: time.Hour,
		})
	}
	create(t, c.Store, messages...)
	for _, m := range messages {
		settle(t, c.Store, halfmsg.EventCommitted, 0, submit(t, c.Store, m.Name)...)
	}
	other := halfmsg.Message{Name: halfmsg.Name{Producer: "orders", ID: "other"}, ConfirmAfter: time.Hour}
	create(t, c.Store, other)
	settle(t, c.Store, halfmsg.EventCommitted, 0, submit(t, c.Store, other.Name)...)
	claims, err := c.ClaimSendable(t.Context(), 1, time.Minute)
	must.Succeed(t, err)
	if len(claims) != 1 || claims[0].ID != "other" {
		t.Errorf("claimed: %v", claims)
	}
	if waiting, err := c.Backlog(t.Context(), 0); err != nil || waiting != 0 {
		t.Errorf("%d messages could be sent now, %v", waiting, err)
	}
}
