package redis_test

import (
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2/server"

	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// While a slot moves, each of the two masters has some of its keys. A script on either master would miss acknowledged
// messages, or store a message twice.
func TestSlotThatMovesIsLeftAlone(t *testing.T) {
	t.Parallel()
	nodes := servers.RedisMasters(t)
	store := open(t, redisstore.Config{URL: "redis://" + nodes[0].Addr + "?cluster=true", Prefix: "msghandler", Shards: 1})
	create(t, store, half("1"))

	slot, from, to := moveSlot(t, nodes, redisstore.Tags(1)[0])

	other := half("1")
	other.Body = []byte("something else")
	name := half("1").Name
	_, got := store.Get(t.Context(), name)
	for what, err := range map[string]error{
		"the same id with another body": store.Create(t.Context(), []halfmsg.Message{other})[0].Err,
		"a new message":                 store.Create(t.Context(), []halfmsg.Message{half("2")})[0].Err,
		"a Submit":                      store.Submit(t.Context(), []halfmsg.Name{name}, time.Minute)[0].Err,
		"a Rollback":                    store.Rollback(t.Context(), []halfmsg.Name{name})[0].Err,
		"a look":                        got,
	} {
		if !errors.Is(err, halfmsg.ErrUnavailable) {
			t.Errorf("%s, while the slot moves: %v", what, err)
		}
	}
	if n := strings.TrimSpace(to.CLI("cluster", "countkeysinslot", slot)); n != "0" {
		t.Errorf("%s keys were written where the slot moves to", n)
	}

	host, port, _ := net.SplitHostPort(to.Addr)
	keys := strings.Fields(from.CLI("cluster", "getkeysinslot", slot, "100"))
	out := from.CLI(append([]string{"migrate", host, port, "", "0", "5000", "keys"}, keys...)...)
	if !strings.Contains(out, "OK") {
		t.Fatalf("%s of %q", out, keys)
	}
	for _, node := range []*servers.RedisServer{to, from} {
		node.CLI("cluster", "setslot", slot, "node", idOf(to))
	}
	servers.Eventually(t, time.Minute, "reads find where the slot is", func() bool {
		_, err := store.Get(t.Context(), name)
		return err == nil
	})
	servers.Eventually(t, time.Minute, "moves find where the slot is", func() bool {
		return store.Submit(t.Context(), []halfmsg.Name{name}, time.Minute)[0].Err == nil
	})
	if err := store.Create(t.Context(), []halfmsg.Message{other})[0].Err; !errors.Is(err, halfmsg.ErrExists) {
		t.Errorf("the same id with another body, when the slot has moved: %v", err)
	}
}

// moveSlot begins to move the slot of a tag, which has keys, to another master.
func moveSlot(t *testing.T, nodes []*servers.RedisServer, tag string) (slot string, from, to *servers.RedisServer) {
	t.Helper()
	slot = strings.TrimSpace(nodes[0].CLI("cluster", "keyslot", "{"+tag+"}"))
	for _, node := range nodes {
		if n := strings.TrimSpace(node.CLI("cluster", "countkeysinslot", slot)); n != "0" {
			from = node
		} else {
			to = node
		}
	}
	to.CLI("cluster", "setslot", slot, "importing", idOf(from))
	from.CLI("cluster", "setslot", slot, "migrating", idOf(to))
	return slot, from, to
}

// idOf is a node's name in its Cluster.
func idOf(node *servers.RedisServer) string { return strings.TrimSpace(node.CLI("cluster", "myid")) }

// The driver could send a script again after a lost answer. The second answer says nothing about the first run.
func TestScriptIsSentToClusterOnce(t *testing.T) {
	t.Parallel()
	node, err := server.NewServer("127.0.0.1:0")
	must.Succeed(t, err)
	defer node.Close()
	var ran atomic.Int64
	tell := func(command string, say func(*server.Peer)) {
		must.Succeed(t, node.Register(command, func(c *server.Peer, _ string, _ []string) { say(c) }))
	}
	tell("CLUSTER", func(c *server.Peer) { // SLOTS: this server has all slots
		c.WriteLen(1)
		c.WriteLen(3)
		c.WriteInt(0)
		c.WriteInt(16383)
		c.WriteLen(3)
		c.WriteBulk("127.0.0.1")
		c.WriteInt(node.Addr().Port)
		c.WriteBulk("the only one")
	})
	tell("COMMAND", func(c *server.Peer) { c.WriteLen(0) })
	tell("PING", func(c *server.Peer) { c.WriteInline("PONG") })
	tell("SCRIPT", func(c *server.Peer) { c.WriteBulk(strings.Repeat("0", 40)) })
	tell("HGETALL", func(c *server.Peer) { c.WriteStrings([]string{"layout", "1", "shards", "1", "installation", "x"}) })
	tell("EVALSHA", func(c *server.Peer) {
		if ran.Add(1) == 1 {
			c.Close() // the script has run, and the answer is lost
			return
		}
		c.WriteError("LOADING Redis is loading the dataset in memory")
	})
	store := open(t, redisstore.Config{URL: "redis://" + node.Addr().String() + "?cluster=true"})
	if err := store.Create(t.Context(), []halfmsg.Message{half("1")})[0].Err; !errors.Is(err, halfmsg.ErrUncertain) {
		t.Errorf("a script whose answer was lost: %v", err)
	}
	if n := ran.Load(); n != 1 {
		t.Errorf("the script was sent %d times", n)
	}
}

// A sweep never reaches the end of a master that was replaced meanwhile.
func TestSweepEndsWithoutLostMaster(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Indexed(redisstore.Config{}))
	create(t, store, half("1"))
	store.SweepBegunOn("127.0.0.1:1")
	sweep(t, store)
	if n := client.ZRem(t.Context(), "msghandler:{00}:orders:pending", "1").Val(); n != 1 {
		t.Fatalf("%d messages taken out of their index", n)
	}
	if repairs := sweep(t, store); repairs.Made == 0 {
		t.Error("the next sweep has repaired nothing")
	}
}
