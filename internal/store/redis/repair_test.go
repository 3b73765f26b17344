package redis_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// sweep makes one whole round.
func sweep(t *testing.T, store *redisstore.Store) redisstore.Repairs {
	t.Helper()
	var all redisstore.Repairs
	for range 10000 {
		repairs, more, err := store.Sweep(t.Context())
		must.Succeed(t, err)
		all.Checked += repairs.Checked
		all.Made += repairs.Made
		if !more {
			return all
		}
	}
	t.Fatal("a sweep without end")
	return all
}

// damage is a kind of damage to a message "1" with known raw keys, and the expected repair.
type damage struct {
	name  string
	state halfmsg.State // before
	do    func(c redis.Cmdable, t *testing.T, at keysOf)
	log   string
	after halfmsg.State
}

// keysOf names the keys of the message "1".
type keysOf struct {
	base, record, notes, leases string
}

func (k keysOf) index(s halfmsg.State) string { return k.base + s.String() }

func damages() []damage {
	now := float64(time.Now().UnixMilli())
	return []damage{
		{"index entry without record", halfmsg.Pending, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Del(t.Context(), at.record)
		}, "index entry without record", halfmsg.None},
		{"record without index", halfmsg.Pending, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Del(t.Context(), at.index(halfmsg.Pending), at.index(halfmsg.Pending)+":created",
				at.base[:len(at.base)-len("orders:")]+"producers")
		}, "record without index", halfmsg.Pending},
		{"acknowledged record without index", halfmsg.Acknowledged, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Del(t.Context(), at.index(halfmsg.Acknowledged), at.index(halfmsg.Acknowledged)+":created")
		}, "record without index", halfmsg.Acknowledged},
		{"acknowledged record among the sendable", halfmsg.Acknowledged, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.ZAdd(t.Context(), at.index(halfmsg.Sendable), redis.Z{Score: now, Member: "1"})
		}, "in two indexes", halfmsg.Acknowledged},
		{"acknowledged record moved to the sendable", halfmsg.Acknowledged, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Rename(t.Context(), at.index(halfmsg.Acknowledged), at.index(halfmsg.Sendable))
		}, "record without index", halfmsg.Acknowledged},
		{"committed record without index", halfmsg.Sendable, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Del(t.Context(), at.index(halfmsg.Sendable), at.index(halfmsg.Sendable)+":created")
		}, "record without index", halfmsg.Sendable},
		{"half of a commit", halfmsg.Pending, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.ZAdd(t.Context(), at.index(halfmsg.Sendable), redis.Z{Score: now, Member: "1"})
		}, "in two indexes", halfmsg.Sendable},
		{"creation time in two indexes", halfmsg.Pending, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.ZAdd(t.Context(), at.index(halfmsg.Sendable)+":created", redis.Z{Score: now, Member: "1"})
		}, "creation time in two indexes", halfmsg.Pending},
		{"creation time missing", halfmsg.Dead, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Del(t.Context(), at.index(halfmsg.Dead)+":created")
		}, "creation time missing", halfmsg.Dead},
		{"expiry", halfmsg.Abandoned, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Expire(t.Context(), at.record, time.Hour)
		}, "expiry on an unfinished message", halfmsg.Abandoned},
		{"half of a finish", halfmsg.Sendable, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Set(t.Context(), at.record, "done 1700000000000 abc", time.Hour)
		}, "index entry without record", halfmsg.Done},
		{"endless trace", halfmsg.Done, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Persist(t.Context(), at.record)
		}, "trace without an end", halfmsg.Done},
		{"lease on a dead message", halfmsg.Dead, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.HSet(t.Context(), at.leases, "1", "x/1")
		}, "lease on a message without a loop", halfmsg.Dead},
		{"lease without record", halfmsg.Done, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.HSet(t.Context(), at.leases, "1", "x/1")
		}, "lease without record", halfmsg.Done},
		{"notes without record", halfmsg.Done, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.HSet(t.Context(), at.notes, "copies", "1")
		}, "notes without record", halfmsg.Done},
		{"superfluous producer", halfmsg.Done, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.SAdd(t.Context(), at.base[:len(at.base)-len("orders:")]+"producers", "orders")
		}, "producer without messages", halfmsg.Done},
		{"producer missing", halfmsg.Pending, func(c redis.Cmdable, t *testing.T, at keysOf) {
			c.Del(t.Context(), at.base[:len(at.base)-len("orders:")]+"producers")
		}, "producer missing in the list", halfmsg.Pending},
	}
}

func bring(t *testing.T, store *redisstore.Store, m halfmsg.Message, state halfmsg.State) {
	t.Helper()
	create(t, store, m)
	if state == halfmsg.Pending {
		return
	}
	claims := submit(t, store, m.Name)
	if state == halfmsg.Abandoned {
		settle(t, store, halfmsg.EventGivenUp, 0, claims...)
		return
	}
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	events := map[halfmsg.State]halfmsg.Event{
		halfmsg.Sendable: halfmsg.EventReleased, halfmsg.Done: halfmsg.EventAcked, halfmsg.Dead: halfmsg.EventExhausted,
		halfmsg.Acknowledged: halfmsg.EventAckedMarked,
	}
	settle(t, store, events[state], 0, claims...)
}

func TestTheSweeperRepairs(t *testing.T) {
	t.Parallel()
	_, client, server := fresh(t, redisstore.Config{})
	for i, d := range damages() {
		t.Run(d.name, func(t *testing.T) {
			log, logger := logged()
			prefix := fmt.Sprintf("sweep%d", i)
			store := open(t, redisstore.Indexed(redisstore.Config{URL: server.URL(), Prefix: prefix, Logger: logger, Shards: 1}))
			bring(t, store, half("1"), d.state)
			client.Set(t.Context(), prefix+":other", "1", 0) // foreign, with a similar prefix
			if repairs := sweep(t, store); repairs.Made != 0 || repairs.Checked == 0 {
				t.Fatalf("repaired whole records: %+v\n%s", repairs, log)
			}
			base := prefix + ":{00}:orders:"
			d.do(client, t, keysOf{base, base + "m:1", base + "x:1", base + "leases"})
			if repairs := sweep(t, store); repairs.Made == 0 || !strings.Contains(log.String(), d.log) {
				t.Fatalf("%+v, logged:\n%s", repairs, log)
			}
			again := sweep(t, store)
			if again.Made != 0 {
				t.Errorf("repaired again:\n%s", log)
			}
			if r, _ := store.Get(t.Context(), half("1").Name); r.State != d.after {
				t.Errorf("the message is %s, want %s", r.State, d.after)
			}
			left, _ := client.Keys(t.Context(), prefix+":{*").Result()
			if (d.after.Final() || d.after == halfmsg.None) && len(left) > 1 {
				t.Errorf("left: %v", left)
			}
			if !d.after.Final() && d.after != halfmsg.None {
				if page, err := store.List(t.Context(), halfmsg.Query{State: d.after, Limit: 5}); err != nil ||
					len(page.Records) != 1 {
					t.Errorf("listed %v, %v", page, err)
				}
			}
		})
	}
}

func TestTheSweeperGetsThroughManyKeys(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Indexed(redisstore.Config{Shards: 2}))
	var messages []halfmsg.Message
	for i := range 3000 {
		messages = append(messages, half(fmt.Sprint(i)))
	}
	create(t, store, messages...)
	if repairs := sweep(t, store); repairs.Made != 0 || repairs.Checked < 3000 {
		t.Fatalf("%+v", repairs)
	}
	found, err := client.Keys(t.Context(), "*:orders:pending").Result()
	if err != nil || len(found) != 2 {
		t.Fatalf("%v, %v", found, err)
	}
	client.Del(t.Context(), found...)
	if repairs := sweep(t, store); repairs.Made < 3000 {
		t.Fatalf("%+v", repairs)
	}
	claims, err := store.ClaimPending(t.Context(), map[string]int{"orders": 5000}, time.Minute)
	if err != nil || len(claims) != 3000 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	records, err := client.Keys(t.Context(), "*:orders:m:*").Result()
	if err != nil || len(records) != 3000 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	client.Del(t.Context(), records...)
	sweep(t, store)
	if left := client.Keys(t.Context(), "*").Val(); len(left) != 1 {
		t.Errorf("left without records: %v", left)
	}
}

// TestUnreadableRecordIsSetAside spoils records among good ones, in each state that is claimed.
func TestUnreadableRecordIsSetAside(t *testing.T) {
	t.Parallel()
	spoil := map[string]func(redis.Cmdable, *testing.T, string){
		"garbage": func(c redis.Cmdable, t *testing.T, key string) { c.Set(t.Context(), key, "garbage", 0) },
		"header": func(c redis.Cmdable, t *testing.T, key string) {
			c.Set(t.Context(), key, "half 1700000000000 abc {nonsense\nbody", 0)
		},
		"packed": func(c redis.Cmdable, t *testing.T, key string) {
			c.Set(t.Context(), key, "pack 1700000000000 abc 9 {}\nbody", 0)
		},
		"empty": func(c redis.Cmdable, t *testing.T, key string) { c.Set(t.Context(), key, " ", 0) },
	}
	for name, do := range spoil {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, logger := logged()
			writer, client, server := fresh(t, redisstore.Config{})
			store := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler", Logger: logger}) // remembers no message
			ctx := t.Context()
			for _, id := range []string{"a", "bad", "c"} {
				bring(t, writer, half("p-"+id), halfmsg.Pending)
				bring(t, writer, half("s-"+id), halfmsg.Sendable)
			}
			bring(t, writer, half("sub"), halfmsg.Pending)
			for _, id := range []string{"p-bad", "s-bad", "sub"} {
				do(client, t, key(t, client, "m:"+id))
			}
			if r := store.Submit(ctx, []halfmsg.Name{half("sub").Name}, time.Minute)[0]; !errors.Is(r.Err, halfmsg.ErrCorrupt) ||
				r.Claim != nil || r.State != halfmsg.Abandoned {
				t.Errorf("submit: %v, %v, %v", r.State, r.Err, r.Claim)
			}
			pending, err := store.ClaimPending(ctx, map[string]int{"orders": 10}, time.Minute)
			if err != nil || len(pending) != 2 {
				t.Errorf("claimed %v, %v", pending, err)
			}
			sendable, err := store.ClaimSendable(ctx, 10, time.Minute)
			if err != nil || len(sendable) != 2 {
				t.Errorf("claimed %v, %v", sendable, err)
			}
			for id, state := range map[string]halfmsg.State{
				"p-bad": halfmsg.Abandoned, "sub": halfmsg.Abandoned, "s-bad": halfmsg.Dead,
			} {
				r, err := store.Get(ctx, half(id).Name)
				if r.State != state || !errors.Is(err, halfmsg.ErrCorrupt) ||
					!strings.Contains(err.Error(), "m:"+id) || r.LastError == "" {
					t.Errorf("%s: %+v, %v", id, r, err)
				}
				page, err := store.List(ctx, halfmsg.Query{State: state, Limit: 10})
				if err != nil || len(page.Records) == 0 || page.Records[0].LastError == "" {
					t.Errorf("listed %+v, %v", page, err)
				}
				// A change of a broker's messages must not take messages of which the broker is unknown. The header of packed
				// can be read.
				ofDefault := halfmsg.Query{State: state, Broker: halfmsg.DefaultBroker, Limit: 10}
				if page, err := store.List(ctx, ofDefault); err != nil || (len(page.Records) > 0) != (name == "packed") {
					t.Errorf("listed for the default broker: %+v, %v", page, err)
				}
				if !strings.Contains(log.String(), id) {
					t.Errorf("%s is not in the log", id)
				}
			}
			if repairs := sweep(t, store); repairs.Made != 0 {
				t.Errorf("the sweeper took the keys up: %s", log)
			}
		})
	}
}

// TestWrongTypedKeysSpoilOneMessage puts keys of a wrong type where commands of the scripts fail.
func TestWrongTypedKeysSpoilOneMessage(t *testing.T) {
	t.Parallel()
	log, logger := logged()
	store, client, _ := fresh(t, redisstore.Indexed(redisstore.Config{Shards: 1, Logger: logger}))
	ctx := t.Context()
	var messages []halfmsg.Message
	var names []halfmsg.Name
	for _, id := range []string{"a", "record", "notes", "z"} {
		messages = append(messages, half(id))
		names = append(names, half(id).Name)
	}
	create(t, store, messages...)
	client.Del(ctx, key(t, client, "m:record"))
	base := "msghandler:{00}:orders:"
	client.LPush(ctx, base+"m:record", "x")
	client.LPush(ctx, base+"x:notes", "x")
	claims, err := store.ClaimPending(ctx, map[string]int{"orders": 10}, time.Minute)
	if err != nil || len(claims) != 2 || claims[0].ID != "a" || claims[1].ID != "z" {
		t.Fatalf("claimed %v, %v", claims, err)
	}
	if !strings.Contains(log.String(), "m:record") || !strings.Contains(log.String(), "put off") {
		t.Errorf("logged:\n%s", log)
	}
	for i, r := range store.Submit(ctx, names, time.Minute) {
		if bad := i == 1 || i == 2; bad != errors.Is(r.Err, halfmsg.ErrCorrupt) {
			t.Errorf("submit %s: %v", names[i], r.Err)
		}
	}
	settle(t, store, halfmsg.EventCommitted, 0, claims...)
	if r := store.Create(ctx, messages[1:2])[0]; !errors.Is(r.Err, halfmsg.ErrCorrupt) {
		t.Errorf("create: %v", r.Err)
	}
	sweep(t, store)
}

// TestNextCallFinishesHalfWrittenMoves leaves the traces of a script that ended halfway.
func TestNextCallFinishesHalfWrittenMoves(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{Shards: 1})
	ctx := t.Context()
	base := "msghandler:{00}:orders:"

	create(t, store, half("created"))
	client.Del(ctx, base+"pending", base+"pending:created", "msghandler:{00}:producers")
	if r := store.Create(ctx, []halfmsg.Message{half("created")})[0]; r.Err != nil || r.State != halfmsg.Pending {
		t.Errorf("create again: %v, %v", r.State, r.Err)
	}
	submit(t, store, half("created").Name)

	bring(t, store, half("done"), halfmsg.Sendable)
	client.Set(ctx, base+"m:done", "done 1700000000000 abc", time.Minute)
	if claims, err := store.ClaimSendable(ctx, 10, time.Minute); err != nil || len(claims) != 0 {
		t.Errorf("claimed a done message: %v, %v", claims, err)
	}
	if r, err := store.Get(ctx, half("done").Name); err != nil || r.State != halfmsg.Done {
		t.Errorf("%v, %v", r.State, err)
	}

	bring(t, store, half("sendable"), halfmsg.Sendable)
	client.ZRem(ctx, base+"sendable", "sendable")
	if r := store.Submit(ctx, []halfmsg.Name{half("sendable").Name}, time.Minute)[0]; r.Err != nil ||
		r.State != halfmsg.Sendable {
		t.Errorf("a committed message without index: %v, %v", r.State, r.Err)
	}

	// Committed, but still in the index of PENDING: the next caller sees SENDABLE.
	create(t, store, half("both"))
	client.ZAdd(ctx, base+"sendable", redis.Z{Score: 1, Member: "both"})
	if r := store.Rollback(ctx, []halfmsg.Name{half("both").Name})[0]; !errors.Is(r.Err, halfmsg.ErrIllegal) ||
		r.State != halfmsg.Sendable {
		t.Errorf("rollback: %v, %v", r.State, r.Err)
	}
}

func TestOnlyReceiptsRemain(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	for i, state := range []halfmsg.State{halfmsg.Done, halfmsg.Done, halfmsg.Dead, halfmsg.Pending} {
		bring(t, store, half(fmt.Sprint(i)), state)
	}
	store.Discard(t.Context(), []halfmsg.Name{half("2").Name}, halfmsg.None)
	store.Rollback(t.Context(), []halfmsg.Name{half("3").Name})
	left, err := client.Keys(t.Context(), "*").Result()
	if err != nil || len(left) != 4 {
		t.Errorf("left: %v, %v", left, err)
	}
	for _, key := range left {
		if ttl := client.TTL(t.Context(), key).Val(); ttl <= 0 && key != "msghandler:meta" {
			t.Errorf("%s has no expiry", key)
		}
	}
}
