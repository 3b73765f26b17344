package redis_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
)

// A hash of few cells is a hash table too. Cells of the version before, with a longer mark of no owner, have no owner.
func TestCellsAreKeptInATable(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, later("first"), later("1"))
	create(t, store, later("2"))
	cells := base + "pending:cells"
	if got := client.ObjectEncoding(t.Context(), cells).Val(); got != "hashtable" {
		t.Errorf("three cells are kept as %s", got)
	}
	short, long := client.HGet(t.Context(), cells, "1").Val(), client.HGet(t.Context(), cells, "first").Val()
	if !strings.HasSuffix(short, " -") || !strings.HasSuffix(long, " -----------------------") {
		t.Errorf("the cells are %q and %q", long, short)
	}
	if claims := submit(t, store, half("first").Name, half("1").Name); len(claims) != 2 {
		t.Errorf("claimed %d of two messages without an owner", len(claims))
	}
}

// Of a producer without messages no page is left, however many there were.
func TestPagesOfFinishedMessagesAreForgotten(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, later("1"))
	pipe := client.Pipeline()
	for page := range 2500 {
		pipe.ZAdd(t.Context(), base+"pages", redis.Z{Score: float64(time.Now().UnixMilli()), Member: page})
		pipe.RPush(t.Context(), base+"page:"+strconv.Itoa(page), "2")
	}
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := store.Rollback(t.Context(), []halfmsg.Name{half("1").Name})[0]; r.Err != nil {
		t.Fatal(r.Err)
	}
	for range 3 {
		if repairs := sweep(t, store); repairs.Made > 1 { // the producer's place on the list, at most
			t.Errorf("the sweeper found %d mistakes", repairs.Made)
		}
	}
	if left := client.Keys(t.Context(), base+"page*").Val(); len(left) != 0 {
		t.Errorf("%d keys of pages are left", len(left))
	}
	if client.Exists(t.Context(), "msghandler:{00}:producers").Val() != 0 {
		t.Error("a producer without messages is on the list")
	}
}

func TestTheSweeperRepairsPages(t *testing.T) {
	t.Parallel()
	old := fmt.Sprintf("%d 1795466788616 0000000000000 -----------------------", time.Now().Add(-time.Hour).UnixMilli())
	for name, test := range map[string]struct {
		damage func(client *redis.Client, t *testing.T)
		log    string
		after  halfmsg.State
	}{
		"cell without record": {func(c *redis.Client, t *testing.T) {
			c.Del(t.Context(), base+"m:1")
		}, "cell without record", halfmsg.None},
		"cell of a finished message": {func(c *redis.Client, t *testing.T) {
			c.Set(t.Context(), base+"m:1", "done 1795466788616 digest", time.Hour)
		}, "cell without record", halfmsg.Done},
		"page that was forgotten": {func(c *redis.Client, t *testing.T) {
			c.Del(t.Context(), c.Keys(t.Context(), base+"page*").Val()...)
			c.HSet(t.Context(), base+"pending:cells", "1", old)
		}, "cell of a message that should be in an index", halfmsg.Pending},
		"unreadable cell": {func(c *redis.Client, t *testing.T) {
			c.HSet(t.Context(), base+"pending:cells", "1", "nonsense")
		}, "cell of a message that should be in an index", halfmsg.Pending},
		"cell and index": {func(c *redis.Client, t *testing.T) {
			c.ZAdd(t.Context(), base+"sendable", redis.Z{Score: 1, Member: "1"})
		}, "in two indexes", halfmsg.Sendable},
		"two cells": {func(c *redis.Client, t *testing.T) {
			c.HSet(t.Context(), base+"sendable:cells", "1", c.HGet(t.Context(), base+"pending:cells", "1").Val())
		}, "in two cells", halfmsg.Sendable},
		"page without due time": {func(c *redis.Client, t *testing.T) {
			c.Del(t.Context(), base+"pages")
		}, "page without due time", halfmsg.Pending},
		"page due too far away": {func(c *redis.Client, t *testing.T) {
			far := float64(time.Now().Add(time.Hour).UnixMilli())
			c.ZAdd(t.Context(), base+"pages", redis.Z{Score: far, Member: c.ZRange(t.Context(), base+"pages", 0, 0).Val()[0]})
		}, "page due too far away", halfmsg.Pending},
		"expiry": {func(c *redis.Client, t *testing.T) {
			c.Expire(t.Context(), base+"m:1", time.Hour)
		}, "expiry on an unfinished message", halfmsg.Pending},
		"producer missing": {func(c *redis.Client, t *testing.T) {
			c.Del(t.Context(), "msghandler:{00}:producers")
		}, "producer missing in the list", halfmsg.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			log, logger := logged()
			store, client, _ := fresh(t, redisstore.Config{Logger: logger})
			create(t, store, later("1"))
			if repairs := sweep(t, store); repairs.Made != 0 || repairs.Checked == 0 {
				t.Fatalf("repaired whole records: %+v\n%s", repairs, log)
			}
			test.damage(client, t)
			if repairs := sweep(t, store); repairs.Made == 0 || !strings.Contains(log.String(), test.log) {
				t.Fatalf("%+v, logged:\n%s", repairs, log)
			}
			finishPages(t, store)
			if again := sweep(t, store); again.Made != 0 {
				t.Errorf("repaired again:\n%s", log)
			}
			if r, _ := store.Get(t.Context(), half("1").Name); r.State != test.after {
				t.Errorf("the message is %s, want %s", r.State, test.after)
			}
		})
	}
}
