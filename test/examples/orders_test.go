package examples

import (
	"cmp"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	amqp "github.com/rabbitmq/amqp091-go"
	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/test/servers"
)

const (
	clients   = 4
	perClient = 20
	kills     = 4
	// patience bounds each wait, on a slow machine.
	patience = 2 * time.Minute
)

// place is a database of both services, by the URL that the services know and by the driver and name of this test.
type place struct{ url, driver, dsn string }

// Clients order, and repeat each request under its key until an answer is final. Meanwhile the service, the consumer
// and the coordinator are killed, and messages are delivered twice. In the end each order has one invoice, and nothing
// else has.
func TestOrdersSurviveKills(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) place{
		"PostgreSQL": func(t *testing.T) place {
			d := servers.PostgreSQL(t)
			return place{d.URL(), d.Driver, d.DSN}
		},
		"MariaDB": func(t *testing.T) place {
			d := servers.MariaDB(t)
			return place{d.URL(), d.Driver, d.DSN}
		},
		"SQLite": func(t *testing.T) place {
			file := filepath.Join(t.TempDir(), "shop.db")
			return place{"sqlite:" + file, "sqlite", "file:" + file + "?mode=rw&_pragma=busy_timeout(20000)"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ordersSurvive(t, open(t))
		})
	}
}

func ordersSurvive(t *testing.T, p place) {
	addresses, broker := servers.Addresses(t, 3), servers.RabbitMQ(t).URL
	deliverAgain := copier(t, broker)
	processes := []*process{
		start(t, []string{
			"MSGHANDLER_GRPC_ADDR=" + addresses[0], "MSGHANDLER_HTTP_ADDR=" + addresses[1],
			"MSGHANDLER_REDIS_URL=" + servers.Redis(t).URL(), "MSGHANDLER_AMQP_URL=" + broker,
			// Short times, so that the waits for the loops and for leases of dead coordinators are short.
			"MSGHANDLER_CONFIRM_AFTER=1s", "MSGHANDLER_CONFIRM_TIMEOUT=1500ms", "MSGHANDLER_CONFIRM_LEASE=6s",
			"MSGHANDLER_CONFIRM_BACKOFF=1s,2s", "MSGHANDLER_SEND_CONFIRM_TIMEOUT=3s", "MSGHANDLER_SEND_LEASE=8s",
		}, "msghandler", "serve"),
		start(t, []string{"INVOICES_DATABASE=" + p.url, "INVOICES_AMQP=" + broker}, "invoices"),
		start(t, []string{
			"ORDERS_DATABASE=" + p.url, "ORDERS_COORDINATOR=" + addresses[0], "ORDERS_LISTEN=" + addresses[2],
		}, "orders"),
	}
	var answered atomic.Int64
	var running sync.WaitGroup
	for c := range clients {
		running.Go(func() {
			for n := range perClient {
				item := cmp.Or(map[bool]string{n%10 == 9: "painting"}[true], "book") // there is one painting
				key := fmt.Sprintf("%d-%d", c, n)
				order(t, addresses[2], key, item)
				if item == "book" {
					deliverAgain(key)
				}
				answered.Add(1)
			}
		})
	}
	for k := range kills {
		// Between two kills comes a random number of answers, of all that are still to come.
		next := answered.Load() + rand.Int64N(clients*perClient/kills)
		servers.Eventually(t, patience, "clients go on", func() bool {
			return answered.Load() > min(next, clients*perClient-1)
		})
		victim := processes[(k+rand.IntN(2))%len(processes)]
		victim.kill()
		victim.start()
	}
	running.Wait()
	balance(t, p)
}

// order orders as a client does: without a final answer it repeats the request under the same key.
func order(t *testing.T, address, key, item string) {
	deadline := time.Now().Add(patience)
	for last := ""; ; {
		if time.Now().After(deadline) {
			t.Errorf("order %s has no final answer: %s", key, last)
			return
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/orders",
			strings.NewReader(`{"item": "`+item+`", "quantity": 1}`))
		if err != nil {
			t.Error(err)
			return
		}
		request.Header.Set("Idempotency-Key", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			last = err.Error()
			pause()
			continue
		}
		_ = response.Body.Close()
		last = response.Status
		switch again := response.Header.Get("Retry-After") != ""; {
		case again:
			pause()
		case response.StatusCode == http.StatusCreated, item == "painting" && response.StatusCode == http.StatusConflict:
			return
		default:
			t.Errorf("order %s of a %s: %s", key, item, last)
			return
		}
	}
}

// copier returns a function that delivers the message of an order once more, as a coordinator does that has lost the
// broker's answer.
func copier(t *testing.T, url string) func(key string) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDeclare("orders", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	return func(key string) {
		err := ch.PublishWithContext(t.Context(), "orders", "order.placed", false, false, amqp.Publishing{
			AppId: "orders", MessageId: key, DeliveryMode: amqp.Persistent,
			Body: []byte(`{"id":"` + key + `","item":"book","quantity":1}`),
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// pause is a client's pause, shorter than the service asks for.
func pause() { <-time.After(50 * time.Millisecond) }

// balance waits until each order has an invoice, and demands that it has only one, and that nothing else has.
func balance(t *testing.T, p place) {
	t.Helper()
	db, err := sql.Open(p.driver, p.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	count := func(query string) (n int) {
		t.Helper()
		if err := db.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
		return n
	}
	servers.Eventually(t, patience, "each order has an invoice", func() bool {
		return count(`SELECT count(*) FROM orders WHERE id NOT IN (SELECT order_id FROM invoices)`) == 0
	})
	for query, want := range map[string]int{
		`SELECT count(*) FROM orders WHERE item = 'book'`:                             clients * perClient * 9 / 10,
		`SELECT count(*) FROM orders WHERE item = 'painting'`:                         1,
		`SELECT 1000000 - quantity FROM stock WHERE item = 'book'`:                    clients * perClient * 9 / 10,
		`SELECT count(*) FROM invoices`:                                               clients*perClient*9/10 + 1,
		`SELECT count(DISTINCT order_id) FROM invoices`:                               clients*perClient*9/10 + 1,
		`SELECT count(*) FROM invoices WHERE order_id NOT IN (SELECT id FROM orders)`: 0,
	} {
		if got := count(query); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
}
