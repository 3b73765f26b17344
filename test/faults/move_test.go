package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// Operators move the system to other servers, with the commands of a page. A newer release of a server is another one.
var moveRows = []row{
	{
		name: "F51_redis", shows: true, copies: true, leavesMarkers: true, lasting: true,
		fault: moveRedis(servers.Release()), world: options{before: nameServersInFiles},
	},
	{
		name: "F51_redis_trixie", shows: true, copies: true, leavesMarkers: true, lasting: true,
		fault: moveRedis("trixie"), world: options{before: nameServersInFiles},
	},
	{
		name: "F51_redis_newest", shows: true, copies: true, leavesMarkers: true, lasting: true,
		fault: moveRedis("newest"), world: options{before: nameServersInFiles},
	},
	{
		name: "F51_rabbitmq_trixie", copies: true, leavesMarkers: true, lasting: true, fault: moveRabbitMQ("trixie"),
		world: options{ownBroker: true, before: nameServersInFiles, consume: consumeAsServices(2, "payments@rabbitmq-1")},
	},
	{
		name: "F51_rabbitmq_newest", copies: true, leavesMarkers: true, lasting: true, fault: moveRabbitMQ("newest"),
		world: options{ownBroker: true, before: nameServersInFiles, consume: consumeAsServices(2, "payments@rabbitmq-1")},
	},
	{
		name: "F51_region", copies: true, leavesMarkers: true, lasting: true, users: keepers, fault: loseRegion,
		heal: sendMissing, judge: copiesFlagged,
		world: options{once: true, ownBroker: true, consume: consumeAsServices(2, "payments@rabbitmq-1"), settings: []string{
			"MSGHANDLER_DELETE_BUSINESS_WHEN=after_ack", "MSGHANDLER_ARCHIVE_RETENTION=1h",
		}},
	},
	{
		name: "F51_shards", leavesMarkers: true, lasting: true, fault: changeShards, judge: storedInShards,
	},
	{
		name: "F51_consumers", copies: true, lasting: true, fault: scaleConsumers,
		world: options{ownBroker: true, consume: consumeAsServices(1, "payments@1", "payments@2")},
	},
}

const movePage, regionsTest = "docs/run/change.md", "TestPageOpensAnotherRegion"

// TestPageMovesRedis demands commands of the page; the rows F51_redis run them.
func TestPageMovesRedis(t *testing.T) { demandCommands(t, movePage, "failover to") }

// TestPageMovesRabbitMQ demands commands of the page; the rows F51_rabbitmq run them.
func TestPageMovesRabbitMQ(t *testing.T) {
	demandCommands(t, movePage, "import_definitions", "close_all_user_connections", "list_queues")
}

// TestPageOpensAnotherRegion demands commands of the page; the row F51_region runs them.
func TestPageOpensAnotherRegion(t *testing.T) {
	demandCommands(t, movePage, "replicaof no one", "suspect", "msghandler replay")
}

// nameServersInFiles has the coordinators read where Redis and RabbitMQ are in files.
func nameServersInFiles(w *world) {
	dir := w.t.TempDir()
	w.redisFile, w.amqpFile = filepath.Join(dir, "redis-url"), filepath.Join(dir, "amqp-url")
	must.Succeed(w.t, os.WriteFile(w.redisFile, []byte(w.redis.URL()), 0o600))
	if w.node != nil {
		w.node.Ctl("add_user", "msghandler", "SECRET") // as docs/run/rabbitmq.md gives coordinators a user
		w.node.Ctl("set_permissions", "-p", w.broker.Name, "msghandler", "", ".*", "")
	}
	must.Succeed(w.t, os.WriteFile(w.amqpFile, []byte(w.coordinatorsURL()), 0o600))
	w.options.settings = append(w.options.settings, "MSGHANDLER_REDIS_URL=", "MSGHANDLER_REDIS_URL_FILE="+w.redisFile,
		"MSGHANDLER_AMQP_URL=", "MSGHANDLER_AMQP_URL_FILE="+w.amqpFile)
}

// coordinatorsURL is the broker's, for the coordinators' own user where the row has its own RabbitMQ.
func (w *world) coordinatorsURL() string {
	if w.node == nil {
		return w.broker.URL
	}
	return strings.Replace(w.broker.URL, "guest:guest", "msghandler:SECRET", 1)
}

// consumeAsServices starts the load's consumers as services of a service manager, so many in each. A service takes from
// the broker that the world has when it starts.
func consumeAsServices(consumers int, names ...string) func(w *world) {
	return func(w *world) {
		w.consumers = units{t: w.t, running: map[string]func(){}, starts: func(string) func() {
			var stops []func()
			for range consumers {
				stops = append(stops, consumeOne(w, queue, &rabbitmqconsumer.Declare{Exchange: exchange}))
			}
			return func() {
				for _, stop := range stops {
					stop()
				}
			}
		}}
		w.consumers.systemctl(append([]string{"start"}, names...))
	}
}

// moveRedis moves all data to another Redis, of that release, with the commands of the page. The coordinators follow
// without a restart.
func moveRedis(release string) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		pause(ctx, time.Second)
		next := servers.RedisOf(w.t, release)
		w.ledger.Fault("Redis moves to " + next.Addr)
		walk{w: w, words: []string{
			"redis-1:6379", w.redis.Addr, "redis-2:6379", next.Addr, "/etc/msghandler/redis-url", w.redisFile,
		}}.types(pageBlocks(w.t, movePage, "TestPageMovesRedis")[0])
		former := w.redis
		w.redis = next
		w.allSay("Redis has moved")
		former.Kill()
		w.ledger.Fault("the former Redis is gone")
	}
}

// allSay waits until each coordinator has logged a text.
func (w *world) allSay(text string) {
	w.t.Helper()
	for _, c := range w.coordinators {
		servers.Eventually(w.t, time.Minute, "a coordinator logs: "+text, func() bool {
			log, err := os.ReadFile(c.log)
			return err == nil && strings.Contains(string(log), text)
		})
	}
}

// rabbitmqctl is the program of that name for both nodes. Its -n chooses the node.
func rabbitmqctl(former, next *servers.RabbitServer) func(args []string) string {
	nodes := map[string]*servers.RabbitServer{"rabbit@rabbitmq-1": former, "rabbit@rabbitmq-2": next}
	return func(args []string) string {
		return nodes[args[1]].Ctl(args[2:]...) + "\n"
	}
}

// moveRabbitMQ moves the traffic to another RabbitMQ, of that release, with the commands of the page.
func moveRabbitMQ(release string) func(context.Context, *world, *rand.Rand) {
	return func(ctx context.Context, w *world, _ *rand.Rand) {
		pause(ctx, time.Second)
		next := servers.PrivateRabbitMQOf(w.t, release)
		former := w.node
		w.broker = next.VhostNamed(w.broker.Name) // for consumers that start from now on
		w.ledger.Fault("RabbitMQ moves to " + next.URL)
		walk{w: w, words: []string{
			"definitions.json", filepath.Join(w.t.TempDir(), "definitions.json"), "-p /", "-p " + w.broker.Name,
			"amqp://msghandler:SECRET@rabbitmq-2:5672/", w.coordinatorsURL(), "/etc/msghandler/amqp-url", w.amqpFile,
		}, programs: map[string]func([]string) string{
			"rabbitmqctl": rabbitmqctl(former, next), "systemctl": w.consumers.systemctl,
		}}.types(pageBlocks(w.t, movePage, "TestPageMovesRabbitMQ")[0])
		former.Kill()
		w.ledger.Fault("the former RabbitMQ is gone")
		w.messagesGoOn(100)
		w.node = next
	}
}

// loseRegion loses Redis, RabbitMQ, coordinators and consumers of a region at once, and opens another region with the
// commands of the page. The replica there lacks the last second.
func loseRegion(ctx context.Context, w *world, _ *rand.Rand) {
	blocks := pageBlocks(w.t, movePage, regionsTest)
	former, formerRedis, node := w.node, w.redis, servers.PrivateRabbitMQOf(w.t, servers.Release())
	w.replica = servers.Redis(w.t, "--repl-diskless-sync-delay", "0")
	k := walk{w: w, words: []string{
		"definitions.json", filepath.Join(w.t.TempDir(), "definitions.json"),
		"redis-1 6379", strings.Replace(w.redis.Addr, ":", " ", 1), "redis-2:6379", w.replica.Addr,
		"127.0.0.1:9091", w.coordinators[0].http,
		"until msghandler replay", "until msghandler replay --server " + w.coordinators[0].grpc,
	}, programs: map[string]func([]string) string{
		"rabbitmqctl": rabbitmqctl(former, node), "systemctl": w.regionctl,
	}}
	k.types(blocks[0])
	pause(ctx, 2*time.Second)
	w.cutReplica()
	for _, c := range w.coordinators {
		_ = w.end(c, syscall.SIGKILL)
	}
	formerRedis.Kill()
	w.forgot.until()
	former.Kill()
	w.consumers.systemctl([]string{"stop", "payments@rabbitmq-1"})
	w.ledger.Fault("the region is lost")
	w.redis, w.node, w.broker = w.replica, node, node.VhostNamed(w.broker.Name)
	k.types(blocks[1])
	w.allReady()
}

// regionctl is the service manager of the other region. The addresses of the coordinators lead there now.
func (w *world) regionctl(args []string) string {
	if fmt.Sprint(args) != "[start msghandler]" {
		return w.consumers.systemctl(args)
	}
	for _, c := range w.coordinators {
		w.start(c)
	}
	return ""
}

// sendMissing is sendAgain once the consumers have had all that the other region has published.
func sendMissing(t *testing.T, w *world, l *load) {
	t.Helper()
	servers.Eventually(t, patience, "the queue is empty", func() bool {
		underway, ok := w.standing(pb.State_STATE_PENDING, pb.State_STATE_SENDABLE)
		return ok && len(underway) == 0 && w.depth() == 0
	})
	sendAgain(t, w, l)
}

// depth is how many messages the queue of the load has, those included that consumers have in hand.
func (w *world) depth() (messages int) {
	w.t.Helper()
	listed := w.node.Ctl("-q", "list_queues", "-p", w.broker.Name, "messages", "--no-table-headers")
	must.Succeed(w.t, json.Unmarshal([]byte(listed), &messages))
	return messages
}
