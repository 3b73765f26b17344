package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqoutbox"
	"github.com/msghandler/msghandler/consumer"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/test/servers"
)

// paying is a payment service with a database and an inbox of its own.
type paying struct {
	t  *testing.T
	db *sql.DB

	mu sync.Mutex
	// inHand is how many handlers run.
	inHand int
	// deliveries are the received copies, by id, each with its flag.
	deliveries map[string][]bool
	duplicates int
}

// startPaying consumes the queue of paid orders until the test ends, and records the results there.
func startPaying(t *testing.T, url string, says *slog.Logger) *paying {
	t.Helper()
	d := servers.PostgreSQL(t)
	db, err := sql.Open(d.Driver, d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if _, err := db.ExecContext(t.Context(), "CREATE TABLE payments (id VARCHAR(64))"); err != nil {
		t.Fatal(err)
	}
	inbox, err := sqlinbox.New(sqlinbox.Config{DB: db, Dialect: sqlinbox.PostgreSQL, Consumer: "payments"})
	if err != nil {
		t.Fatal(err)
	}
	if err := inbox.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	p := &paying{t: t, db: db, deliveries: map[string][]bool{}}
	pay := inbox.Handler(func(ctx context.Context, tx *sql.Tx, m *consumer.Message) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO payments (id) VALUES ($1)", m.ID)
		return err
	})
	p.consume(url, says, consumer.HandlerFunc(func(ctx context.Context, m *consumer.Message) error {
		p.begin()
		err := pay.Handle(ctx, m)
		p.note(m, err)
		return err
	}))
	return p
}

// consume returns when the queue is consumed.
func (p *paying) consume(url string, says *slog.Logger, h consumer.Handler) {
	p.t.Helper()
	consuming := make(chan struct{})
	c, err := rabbitmqconsumer.New(rabbitmqconsumer.Config{
		URL: url, Queue: "paid", Prefetch: 50, Concurrency: 8,
		// A quorum queue of RabbitMQ 3.10 on one node may stay without a leader after kill -9.
		Declare: &rabbitmqconsumer.Declare{QueueType: amqp.QueueTypeClassic},
		Logger:  says, Consuming: sync.OnceFunc(func() { close(consuming) }),
	})
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx, h); err != nil {
			p.t.Error(err)
		}
	})
	p.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	<-consuming
}

func (p *paying) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inHand++
}

func (p *paying) note(m *consumer.Message, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.inHand--
	p.deliveries[m.ID] = append(p.deliveries[m.ID], m.Attempt > 1 || m.Redelivered)
	if errors.Is(err, consumer.ErrDuplicate) {
		p.duplicates++
	}
}

func (p *paying) payments() (all, distinct int) {
	p.t.Helper()
	row := p.db.QueryRowContext(p.t.Context(), "SELECT COUNT(*), COUNT(DISTINCT id) FROM payments")
	if err := row.Scan(&all, &distinct); err != nil {
		p.t.Fatal(err)
	}
	return all, distinct
}

// paidOnce demands that each order was paid once, and that all copies of an order except the first were flagged.
func (p *paying) paidOnce(orders int) {
	p.t.Helper()
	if all, distinct := p.payments(); all != orders || distinct != orders {
		p.t.Errorf("%d orders have %d payments, %d distinct", orders, all, distinct)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	copies := 0
	for id, flags := range p.deliveries {
		plain := 0
		for _, flagged := range flags {
			if !flagged {
				plain++
			}
		}
		copies += len(flags) - 1
		if plain > 1 {
			p.t.Errorf("%s came %d times without saying so", id, plain)
		}
	}
	p.t.Logf("%d orders paid once each; %d further copies, all flagged, %d of them dropped by the inbox", orders, copies,
		p.duplicates)
}

// The plain outbox, from a transaction in one database to a transaction in another, while the broker is killed twice.
func TestOutboxNeedsNoCoordinator(t *testing.T) {
	broker := servers.PrivateRabbitMQ(t)
	said := &lastLines{}
	payments := startPaying(t, broker.URL, said.logger("consumer"))
	d := servers.MariaDB(t)
	stores := database(t, sqlmarker.MySQL, d.Driver, d.DSN, 2)
	for i, s := range stores {
		to, err := rabbitmqoutbox.New(rabbitmqoutbox.Config{URL: broker.URL, Producer: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(to.Close)
		relay(t, s, to, said.logger(fmt.Sprint("relay ", i)))
	}
	t.Cleanup(func() {
		if t.Failed() {
			tellWhereTheyAre(t, d, broker, payments, said)
		}
	})
	var committing sync.WaitGroup
	committing.Go(func() { commitOrders(t, stores, *orders) })
	for _, share := range []int64{4, 2} {
		servers.Eventually(t, patience, "a share of the orders is sent", func() bool {
			c, err := stores[0].Counts(t.Context())
			return err == nil && c.Sent > int64(*orders)/(2*share)
		})
		broker.Kill()
		broker.Start()
	}
	committing.Wait()
	sentAll(t, stores[0], *orders)
	servers.Eventually(t, patience, "each order is paid", func() bool {
		_, distinct := payments.payments()
		return distinct == *orders
	})
	payments.paidOnce(*orders)
}
