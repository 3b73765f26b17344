package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/dev/demo/books"
	demodb "github.com/msghandler/msghandler/examples/database"
	"github.com/msghandler/msghandler/test/programs"
	"github.com/msghandler/msghandler/test/servers"
)

// world is a set-up like a user's: Redis, RabbitMQ, coordinators, a shop and its consumers.
type world struct {
	t            *testing.T
	redis        *servers.RedisServer
	amqp         string
	dir          string
	coordinators []*coordinator
	// shared is the database of shop and consumers; empty: a new one of PostgreSQL. With sqlite set it is a file.
	shared string
	sqlite bool
	// payWithin is how long an order may stay unpaid; 0 is much longer than a buyer takes who pays.
	payWithin time.Duration
	// products is the number of products on sale; 0 is the shop's own.
	products int
	// files limits the open files and connections of a coordinator; 0 is the test's own limit.
	files int
	// token is the file with the token that coordinators show to producers.
	token string
	// database is the shop's, opened here for reading.
	database *demodb.DB
}

type coordinator struct {
	*programs.Process
	grpc, http string
}

// newWorld has a Redis of its own and a vhost on the broker that the whole run shares.
func newWorld(t *testing.T) *world {
	return newWorldOn(t, servers.RabbitMQ(t).URL)
}

func newWorldOn(t *testing.T, amqp string) *world {
	t.Helper()
	return &world{t: t, redis: servers.Redis(t), amqp: amqp, dir: t.TempDir(), token: tokenFile(t, shopToken)}
}

// startCoordinators starts n of them and waits until they are ready.
func (w *world) startCoordinators(n int, settings ...string) {
	w.t.Helper()
	for range n {
		addresses := servers.Addresses(w.t, 2)
		c := &coordinator{grpc: addresses[0], http: addresses[1]}
		w.coordinators = append(w.coordinators, c)
		w.restart(c, settings...)
	}
	for _, c := range w.coordinators {
		c.Ready(c.http)
	}
}

// restart starts a coordinator, for the first time or after its process has ended.
func (w *world) restart(c *coordinator, settings ...string) {
	w.t.Helper()
	env := w.environment(c)
	if w.files > 0 {
		script := fmt.Sprintf(`ulimit -n %d && exec "$0" serve`, w.files)
		c.Process = programs.StartCommand(w.t, append(env, settings...),
			exec.Command("/bin/sh", "-c", script, programs.Path("msghandler")))
		return
	}
	c.Process = programs.Start(w.t, "msghandler", append(env, settings...), "serve")
}

// environment is the configuration of a coordinator.
func (w *world) environment(c *coordinator) []string {
	return programs.Settings(c.grpc, c.http, w.redis.URL(), w.amqp,
		"MSGHANDLER_CALLBACKS_TOKEN_FILE="+w.token, "MSGHANDLER_CONFIRM_BACKOFF=1s,2s")
}

// run runs a command at the first coordinator.
func (w *world) run(args ...string) (output string, status int) {
	w.t.Helper()
	return programs.Run(w.t, "msghandler", []string{"MSGHANDLER_SERVER=" + w.coordinators[0].grpc}, args...)
}

// targets is where producers find the coordinators.
func (w *world) targets() string {
	var all []string
	for _, c := range w.coordinators {
		all = append(all, c.grpc)
	}
	return strings.Join(all, ",")
}

// databaseURL names the shop's database.
func (w *world) databaseURL() string {
	w.t.Helper()
	switch {
	case w.shared != "":
	case w.sqlite:
		w.shared = "sqlite:" + filepath.Join(w.dir, "shop.db")
	default:
		w.shared = servers.PostgreSQL(w.t).DSN
	}
	return w.shared
}

// open opens the shop's database, to be read.
func (w *world) open() *demodb.DB {
	w.t.Helper()
	if w.database == nil {
		db, err := demodb.Open(w.t.Context(), w.databaseURL())
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { _ = db.Close() })
		w.database = db
	}
	return w.database
}

// common are the arguments that shop and consumers share.
func (w *world) common() []string {
	const muchLonger = 15 * time.Second
	payWithin := w.payWithin
	if payWithin == 0 {
		payWithin = muchLonger
	}
	return []string{"--amqp", w.amqp, "--database", w.databaseURL(), "--pay-within", payWithin.String()}
}

// startConsumers starts the shop's consumers and waits until their queues are there.
func (w *world) startConsumers() *programs.Process {
	w.t.Helper()
	p := programs.Start(w.t, "consumer-demo", nil, append(w.common(), "--prefetch", "200")...)
	p.Says("waiting for orders", 20*time.Second)
	return p
}

// startOrders starts the shop on a file of orders.
func (w *world) startOrders(file string, args ...string) *programs.Process {
	w.t.Helper()
	listen := servers.Addresses(w.t, 1)[0]
	return programs.Start(w.t, "producer-demo", nil, slices.Concat(w.common(), []string{
		"--coordinator", w.targets(), "--listen", listen, "--coordinator-token-file", w.token,
		"--orders", file, "--products", fmt.Sprint(max(w.products, 1000)),
	}, args)...)
}

// writeOrders makes a file of n orders: of each ten, the payment of one is declined, one is never paid, and the
// payment of another commits in silence.
func (w *world) writeOrders(n int) string {
	w.t.Helper()
	w.products = n
	path := filepath.Join(w.dir, "orders-in.jsonl")
	file, err := os.Create(path)
	if err != nil {
		w.t.Fatal(err)
	}
	out := bufio.NewWriter(file)
	for i := range n {
		fail := ""
		switch i % 10 {
		case 3:
			fail = `,"fail":"declined"`
		case 5:
			fail = `,"unpaid":true`
		case 7:
			fail = `,"fail":"silent"`
		}
		fmt.Fprintf(out, `{"id":%d,"buyer":%d,"product":%d%s}`+"\n", i+1, 1+i%97, i+1, fail)
	}
	if err := out.Flush(); err != nil {
		w.t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// paid waits until as many orders are paid and shipped.
func (w *world) paid(n int, within time.Duration) {
	w.t.Helper()
	shipped := 0
	servers.Eventually(w.t, within, fmt.Sprintf("%d orders are paid and shipped", n), func() bool {
		row := w.open().QueryRowContext(w.t.Context(), `SELECT COUNT(*) FROM demo_shipments`)
		if err := row.Scan(&shipped); err != nil {
			w.t.Fatal(err)
		}
		return shipped >= n
	})
}

// books reads the books of the shop.
func (w *world) books() books.Books {
	w.t.Helper()
	b, err := books.Read(w.t.Context(), w.open())
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// balanced waits until the books balance: each of n orders is paid and shipped, once, or is cancelled and its product
// is on sale again, and each event was handled once. An order's ORDER_TIMEOUT is the last of its events.
func (w *world) balanced(n int) {
	w.t.Helper()
	var b books.Books
	defer func() {
		b.Copies = nil
		b.Wrong = b.Wrong[:min(len(b.Wrong), 10)]
		w.t.Logf("of %d orders: %+v", n, b)
	}()
	servers.Eventually(w.t, 2*time.Minute, "the books balance", func() bool {
		b = w.books()
		return len(b.Wrong) == 0 && b.Placed == n && b.Pending == 0
	})
}

// flagged demands that every copy is flagged.
func (w *world) flagged() {
	w.t.Helper()
	copies := w.books().Copies
	for _, c := range copies {
		if !c.Flagged() {
			w.t.Errorf("event %s came again and does not say so", c.Event)
		}
	}
	w.t.Logf("%d copies, all flagged", len(copies))
}

// onlyReceipts demands that Redis holds only receipts that expire, and the keys that describe the store itself.
func (w *world) onlyReceipts() {
	w.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: w.redis.Addr, Protocol: 2})
	defer client.Close()
	keys := client.Scan(w.t.Context(), 0, "*", 1000).Iterator()
	receipts := 0
	for keys.Next(w.t.Context()) {
		key := keys.Val()
		if key == "msghandler:meta" {
			continue
		}
		ttl, err := client.TTL(w.t.Context(), key).Result()
		if err != nil {
			w.t.Fatal(err)
		}
		const forever = -1
		if ttl == forever {
			w.t.Errorf("%s has been left in Redis", key)
		}
		receipts++
	}
	if err := keys.Err(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Logf("Redis holds %d receipts and nothing else", receipts)
}

// drained waits until no message is on its way.
func (w *world) drained(within time.Duration) {
	w.t.Helper()
	servers.Eventually(w.t, within, "no message is on its way", func() bool {
		out, status := w.run("stats", "--output", "json")
		if status != 0 {
			return false
		}
		var stats struct {
			States []struct {
				State string `json:"state"`
				Count int64  `json:"count"`
			} `json:"states"`
		}
		if err := json.Unmarshal([]byte(out), &stats); err != nil {
			w.t.Fatalf("stats --output json: %v in %s", err, out)
		}
		for _, s := range stats.States {
			if s.Count > 0 {
				return false
			}
		}
		return len(stats.States) > 0
	})
}
