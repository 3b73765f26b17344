package redis_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// onMasters is a store with so many shards on a Cluster of three masters.
func onMasters(t *testing.T, shards int) (*redisstore.Store, []*servers.RedisServer) {
	t.Helper()
	nodes := servers.RedisMasters(t)
	url := "redis://" + nodes[0].Addr + "?cluster=true"
	return open(t, redisstore.Config{URL: url, Prefix: "msghandler", Shards: shards}), nodes
}

func halves(n int, kind string) (messages []halfmsg.Message, names []halfmsg.Name) {
	for i := range n {
		m := half(fmt.Sprint(kind, i))
		messages, names = append(messages, m), append(names, m.Name)
	}
	return messages, names
}

// scriptCalls counts the script calls of all masters.
func scriptCalls(t *testing.T, nodes []*servers.RedisServer) (calls int) {
	t.Helper()
	for _, node := range nodes {
		_, rest, called := strings.Cut(node.CLI("info", "commandstats"), "cmdstat_evalsha:calls=")
		if !called {
			continue // no script has run there yet
		}
		text, _, _ := strings.Cut(rest, ",")
		n, err := strconv.Atoi(text)
		must.Succeed(t, err)
		calls += n
	}
	return calls
}

// A Cluster's batches hold few messages for each shard, and a call costs as much as several messages.
func TestBatchIsOneCallPerMaster(t *testing.T) {
	t.Parallel()
	store, nodes := onMasters(t, 16)
	messages, names := halves(100, "m")
	create(t, store, messages[0]) // the scripts are loaded
	before := scriptCalls(t, nodes)
	create(t, store, messages[1:]...)
	settle(t, store, halfmsg.EventCommitted, time.Minute, submit(t, store, names...)...)
	if got := scriptCalls(t, nodes) - before; got > 3*len(nodes) {
		t.Errorf("%d calls for three moves of a batch on %d masters", got, len(nodes))
	}
}

// A request is about several shards of a master. The slot of one moves: the calls for the others are made.
func TestMovingSlotStopsNoOtherShard(t *testing.T) {
	t.Parallel()
	const shards = 16
	store, nodes := onMasters(t, shards)
	messages, names := halves(100, "m")
	create(t, store, messages...)

	tag := redisstore.Tags(shards)[0]
	slot, from, to := moveSlot(t, nodes, tag)
	moving := strings.Join(strings.Fields(from.CLI("cluster", "getkeysinslot", slot, "1000")), " ") + " "

	in := 0
	for i, r := range store.Submit(t.Context(), names, time.Minute) {
		key := "msghandler:{" + tag + "}:orders:m:" + names[i].ID + " "
		switch moves := strings.Contains(moving, key); {
		case moves && !errors.Is(r.Err, halfmsg.ErrUnavailable):
			t.Errorf("%s, whose slot moves: %v, %v", names[i], r.State, r.Err)
		case moves:
			in++
		case r.Err != nil || r.Claim == nil:
			t.Errorf("%s, whose slot stays: %v, %v", names[i], r.State, r.Err)
		}
	}
	if in == 0 {
		t.Error("no message is in the moving slot")
	}
	others, _ := halves(100, "n")
	stored := 0
	for _, r := range store.Create(t.Context(), others) {
		if r.Err == nil {
			stored++
		} else if !errors.Is(r.Err, halfmsg.ErrUnavailable) {
			t.Error(r.Err)
		}
	}
	if stored < len(others)*3/4 {
		t.Errorf("%d of %d new messages were stored", stored, len(others))
	}
	if n := strings.TrimSpace(to.CLI("cluster", "countkeysinslot", slot)); n != "0" {
		t.Errorf("%s keys were written where the slot moves to", n)
	}
}
