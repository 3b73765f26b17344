package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc"
	_ "modernc.org/sqlite"

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	pb "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/servers"
)

func paidQueue(w *world) {
	w.t.Helper()
	if _, err := w.channel().QueueDeclare("paid", true, false, false, false, nil); err != nil {
		w.t.Fatal(err)
	}
}

func paidMessage(id string) producer.Message {
	return producer.Message{ID: id, RoutingKey: "paid", Body: []byte("paid " + id)}
}

// database is a business database with markers and messages, with a store for each instance.
func database(t *testing.T, d sqlmarker.Dialect, driver, dsn string, instances int) []*sqlmarker.Store {
	t.Helper()
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(32)
	t.Cleanup(func() { _ = db.Close() })
	stores := make([]*sqlmarker.Store, instances)
	for i := range stores {
		stores[i], err = sqlmarker.New(sqlmarker.Config{DB: db, Dialect: d, Producer: "shop"})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := stores[0].Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return stores
}

func sqliteFile(t *testing.T) string {
	return "file:" + filepath.Join(t.TempDir(), "shop.db") + "?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)"
}

// serveProducer makes a producer of the SDK and serves its callbacks there until the test ends, or stop is called.
func serveProducer(w *world, listen string, markers *sqlmarker.Store) (p *producer.Producer, stop func()) {
	w.t.Helper()
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		w.t.Fatal(err)
	}
	p, err = producer.New(producer.Config{
		Name: "shop", Coordinator: w.targets(), CallbackTarget: listener.Addr().String(), Markers: markers,
		Logger: slog.New(slog.DiscardHandler), Coordinators: producer.Coordinators{Tokens: []string{shopToken}},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	server := grpc.NewServer()
	p.Register(server)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = p.Close(ctx)
		server.Stop()
		serving.Wait()
	})
	w.t.Cleanup(stop)
	return p, stop
}

// relay runs a relay until the test ends, and records the results there.
func relay(t *testing.T, table *sqlmarker.Store, to outbox.Sender, says *slog.Logger) {
	t.Helper()
	r, err := outbox.New(outbox.Config{
		Table: table, Sender: to, Interval: 500 * time.Millisecond, Lock: 6 * time.Second, Logger: says,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// commitOrders commits n orders, some at a time.
func commitOrders(t *testing.T, stores []*sqlmarker.Store, n int) {
	t.Helper()
	next := make(chan string)
	var committing sync.WaitGroup
	for i := range 16 {
		committing.Go(func() {
			for id := range next {
				err := stores[i%len(stores)].Commit(t.Context(), paidMessage(id),
					func(context.Context, *sql.Tx) error { return nil })
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- fmt.Sprintf("o-%06d", i)
	}
	close(next)
	committing.Wait()
}

// collect takes messages from the queue until n different messages are there, and demands that every copy is flagged.
func collect(t *testing.T, url string, n int) (copies int) {
	t.Helper()
	seen := map[string]bool{}
	var conn *amqp.Connection
	servers.Eventually(t, patience, fmt.Sprintf("%d different messages", n), func() bool {
		var err error
		if conn == nil || conn.IsClosed() {
			if conn, err = amqp.Dial(url); err != nil {
				conn = nil
				return false
			}
			defer conn.Close()
		}
		channel, err := conn.Channel()
		for err == nil {
			var d amqp.Delivery
			var found bool
			if d, found, err = channel.Get("paid", true); err != nil || !found {
				break
			}
			attempt, _ := d.Headers["msghandler-attempt"].(int64)
			if seen[d.MessageId] {
				copies++
				if attempt <= 1 && !d.Redelivered {
					t.Errorf("%s came again and does not say so", d.MessageId)
				}
			}
			seen[d.MessageId] = true
		}
		return len(seen) >= n
	})
	if len(seen) != n {
		t.Errorf("%d different messages, want %d", len(seen), n)
	}
	return copies
}

// sentAll waits until the table has nothing to send any more.
func sentAll(t *testing.T, s *sqlmarker.Store, n int) {
	t.Helper()
	servers.Eventually(t, patience, "the table is done", func() bool {
		c, err := s.Counts(t.Context())
		return err == nil && c == sqlmarker.Counts{Sent: int64(n)}
	})
}

func TestOrdersCommitWithoutCoordinator(t *testing.T) {
	w := newWorld(t)
	paidQueue(w)
	w.startCoordinators(1)
	d := servers.PostgreSQL(t)
	stores := database(t, sqlmarker.PostgreSQL, d.Driver, d.DSN, 4)
	p, _ := serveProducer(w, "127.0.0.1:0", stores[0])
	w.coordinators[0].Kill()
	for _, s := range stores {
		relay(t, s, outbox.ToCoordinator(p), slog.New(slog.DiscardHandler))
	}
	begun := time.Now()
	commitOrders(t, stores, *orders)
	t.Logf("%d orders committed in %v, without a coordinator", *orders, time.Since(begun))
	for time.Since(begun) < *outage {
		<-time.After(100 * time.Millisecond) // the length of the outage
	}
	w.restart(w.coordinators[0])
	w.coordinators[0].Ready(w.coordinators[0].http)
	back := time.Now()
	if copies := collect(t, w.amqp, *orders); copies > 0 {
		t.Errorf("%d copies", copies)
	}
	t.Logf("all delivered %v after the coordinator was back", time.Since(back))
	sentAll(t, stores[0], *orders)
	w.drained(patience)
	w.onlyReceipts()
}

func TestSQLMarkerSurvivesAProducerCrash(t *testing.T) {
	w := newWorld(t)
	paidQueue(w)
	w.startCoordinators(1, "MSGHANDLER_CONFIRM_ATTEMPTS=2", "MSGHANDLER_CONFIRM_BACKOFF=200ms")
	s := database(t, sqlmarker.SQLite, "sqlite", sqliteFile(t), 1)[0]
	address := servers.Addresses(t, 1)[0]
	p, crash := serveProducer(w, address, s)
	nothing := func(context.Context, *sql.Tx) error { return nil }
	for _, id := range []string{"committed", "never"} {
		if state, err := p.SendHalf(t.Context(), paidMessage(id)); err != nil || state != producer.StatePending {
			t.Fatal(state, err)
		}
	}
	if err := s.InTx(paidMessage("committed"), nothing)(t.Context()); err != nil {
		t.Fatal(err)
	}
	crash() // before its Submit
	serveProducer(w, address, s)
	collect(t, w.amqp, 1)
	w.drained(patience)
	// The coordinator has been told that this business will never commit, so the commit must fail.
	err := s.InTx(paidMessage("never"), nothing)(t.Context())
	if !errors.Is(err, producer.ErrRolledBack) {
		t.Errorf("the late business: %v", err)
	}
	q := newPlainProducer(t, "shop", w.coordinators[0].grpc)
	response, err := q.api.SubmitAll(t.Context(), &pb.SubmitAllRequest{Producer: "shop", Ids: []string{"never"}})
	if err != nil || response.GetOutcomes()[0].GetState() != pb.State_STATE_ROLLED_BACK {
		t.Errorf("the missing message: %v, %v", response, err)
	}
	w.onlyReceipts()
}
