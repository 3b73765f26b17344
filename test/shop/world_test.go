// Package shop_test is the acceptance list of the demos' shop, point by point: on PostgreSQL, MariaDB and SQLite, with
// a real RabbitMQ, and with the outbox publishing straight to the broker.
package shop_test

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/dev/demo/books"
	"github.com/msghandler/msghandler/dev/demo/consumers"
	"github.com/msghandler/msghandler/dev/demo/orders"
	"github.com/msghandler/msghandler/dev/demo/shop"
	"github.com/msghandler/msghandler/examples/database"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { servers.Main(m) }

const (
	patience = 2 * time.Minute
	products = 50
)

// world is a shop with its consumers, its database and its broker.
type world struct {
	*testing.T
	db        *database.DB
	amqp      string
	shop      *shop.Shop
	orders    *orders.Service
	consumers *consumers.Service
	outbox    *sqlmarker.Store
	payWithin time.Duration
	log       *log
	ch        *amqp.Channel
}

// onEach runs a test with a new shop on each database. The configuration of the shop may be changed.
func onEach(t *testing.T, payWithin time.Duration, test func(w *world), changes ...func(*orders.Config)) {
	t.Parallel()
	onEachDatabase(t, func(w *world) {
		w.amqp, w.payWithin, w.log = servers.RabbitMQ(w).URL, payWithin, &log{}
		w.connect()
		w.openShop(changes...)
		test(w)
	})
}

// onEachDatabase runs a test with the tables of a new shop on each database, without a broker.
func onEachDatabase(t *testing.T, test func(w *world)) {
	names := map[string]func(t *testing.T) string{
		"sqlite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "a file.db") },
		"postgresql": func(t *testing.T) string { return servers.PostgreSQL(t).URL() },
		"mariadb":    func(t *testing.T) string { return servers.MariaDB(t).URL() },
	}
	for kind, name := range names {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			db, err := database.Open(t.Context(), name(t))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = db.Close() })
			w := &world{T: t, db: db}
			for range 2 { // the second time everything exists
				w.shop, err = shop.Open(t.Context(), db, products)
				w.must(err)
			}
			test(w)
		})
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// connect opens a raw channel, for looking at queues.
func (w *world) connect() {
	conn, err := amqp.Dial(w.amqp)
	w.must(err)
	w.Cleanup(func() { _ = conn.Close() })
	w.ch, err = conn.Channel()
	w.must(err)
}

// retries are short, so that the tests are.
func retries() []time.Duration { return []time.Duration{50 * time.Millisecond, 100 * time.Millisecond} }

// openShop starts the producer's side, which declares the topology.
func (w *world) openShop(changes ...func(*orders.Config)) {
	w.Helper()
	config := orders.Config{
		Database: w.db, Products: products, AMQP: w.amqp, PayWithin: w.payWithin, Retries: retries(),
		SweepEvery: time.Hour, Backoff: append(retries(), 200*time.Millisecond), Logger: w.log.logger(),
	}
	for _, change := range changes {
		change(&config)
	}
	var err error
	w.orders, err = orders.Open(w.Context(), config)
	w.must(err)
	w.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := w.orders.Close(ctx); err != nil {
			w.Error(err)
		}
	})
	w.outbox, err = sqlmarker.New(sqlmarker.Config{DB: w.db.DB, Dialect: w.db.Dialect, Producer: "orders"})
	w.must(err)
}

// consume starts the consumers, with a courier or without.
func (w *world) consume(courier func(ctx context.Context, order int64) error) {
	w.Helper()
	waiting := make(chan struct{})
	var err error
	w.consumers, err = consumers.Open(w.Context(), consumers.Config{
		URL: w.amqp, Database: w.db, PayWithin: w.payWithin, Retries: retries(), Courier: courier,
		Consuming: func() { close(waiting) }, Logger: w.log.logger(),
	})
	w.must(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.consumers.Run(ctx) }()
	w.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			w.Error(err)
		}
	})
	select {
	case <-waiting:
	case <-time.After(patience):
		w.Fatal("the consumers do not wait for events")
	}
}

func (w *world) eventually(what string, cond func() bool) {
	w.Helper()
	servers.Eventually(w, patience, what, cond)
}

func (w *world) place(id, product int64) {
	w.Helper()
	w.must(w.orders.Place(w.Context(), orders.Order{ID: id, Buyer: 7, Product: product}))
}

func (w *world) look(id int64) shop.Order {
	w.Helper()
	o, err := w.shop.Look(w.Context(), id)
	w.must(err)
	return o
}

func (w *world) product(id int64) string {
	w.Helper()
	p, err := w.shop.Product(w.Context(), id)
	w.must(err)
	return p.Status
}

func (w *world) effects() shop.Effects {
	w.Helper()
	e, err := w.shop.Effects(w.Context())
	w.must(err)
	return e
}

// depth is how many messages are ready in a queue.
func (w *world) depth(queue string) int {
	w.Helper()
	q, err := w.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	w.must(err)
	return q.Messages
}

// get takes the next message of a queue.
func (w *world) get(queue string) (d amqp.Delivery) {
	w.Helper()
	w.eventually("a message in "+queue, func() bool {
		var there bool
		var err error
		d, there, err = w.ch.Get(queue, true)
		w.must(err)
		return there
	})
	return d
}

// publish publishes an event as another program would.
func (w *world) publish(key, id string, body []byte) {
	w.Helper()
	w.must(w.ch.PublishWithContext(w.Context(), shop.Exchange, key, true, false, amqp.Publishing{
		MessageId: id, AppId: "orders", ContentType: "application/json", DeliveryMode: amqp.Persistent, Body: body,
	}))
}

// rows counts rows of the outbox by message id, in any state.
func (w *world) rows(id string) (n int) {
	w.Helper()
	query := w.db.SQL(`SELECT COUNT(*) FROM msghandler_markers WHERE producer = ? AND id = ?`)
	w.must(w.db.QueryRowContext(w.Context(), query, "orders", []byte(id)).Scan(&n))
	return n
}

// balanced waits until the books balance.
func (w *world) balanced() (b books.Books) {
	w.Helper()
	defer func() {
		if w.Failed() {
			w.Logf("%+v", b)
		}
	}()
	w.eventually("the books balance", func() bool {
		var err error
		b, err = books.Read(w.Context(), w.db)
		w.must(err)
		return len(b.Wrong) == 0
	})
	return b
}

// inTx runs a change of the shop in a transaction, without an announcement.
func (w *world) inTx(change func(tx *sql.Tx) error) error {
	return w.shop.InTx(w.Context(), change)
}

// log keeps what the services log.
type log struct{ servers.Log }

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// about returns the lines about a message.
func (l *log) about(id string) (found string) {
	for line := range strings.Lines(l.String()) {
		if strings.Contains(line, "/"+id+" ") {
			found += line
		}
	}
	return found
}
