// Command shop is the shop of the quick start: POST /orders stores an order and announces the order, both or neither.
// The shop has no code for its end, because it may be killed at any time. The example orders has a graceful end, and
// removes old markers.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"time"

	_ "modernc.org/sqlite" // the driver sqlite

	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

func main() {
	ctx := context.Background()
	db, err := sql.Open("sqlite", "file:shop.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)")
	must(err)
	db.SetMaxOpenConns(1) // SQLite has one writer at a time
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, item TEXT NOT NULL)`)
	must(err)
	markers, err := sqlmarker.New(sqlmarker.Config{DB: db, Dialect: sqlmarker.SQLite, Producer: "shop"})
	must(err)
	must(markers.Migrate(ctx)) // a table beside the orders
	p, err := producer.New(producer.Config{
		Name: "shop", Coordinator: "127.0.0.1:9090", Markers: markers, SendTimeout: 5 * time.Second,
	})
	must(err)

	http.Handle("POST /orders", &shop{db, markers, p})
	server := &http.Server{Addr: "127.0.0.1:8080", ReadTimeout: 10 * time.Second}
	slog.Info("the shop takes orders", "address", server.Addr)
	must(server.ListenAndServe())
}

func must(err error) {
	if err != nil {
		slog.Error("the shop ends", "cause", err)
		os.Exit(1)
	}
}

type shop struct {
	db       *sql.DB
	markers  *sqlmarker.Store
	producer *producer.Producer
}

type order struct {
	ID   string `json:"id"`
	Item string `json:"item"`
}

// validID is what the id of a message may be.
var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$`)

// ServeHTTP takes an order. Its id is the client's Idempotency-Key: a client without an answer repeats its request.
func (s *shop) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o := order{ID: r.Header.Get("Idempotency-Key"), Item: r.FormValue("item")}
	if !validID.MatchString(o.ID) || o.Item == "" {
		http.Error(w, "an order has an Idempotency-Key and an item", http.StatusBadRequest)
		return
	}
	// The order goes on when its client hangs up, because the client repeats it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 10*time.Second)
	defer cancel()
	stored, err := s.look(ctx, o.ID)
	if errors.Is(err, sql.ErrNoRows) {
		stored, err = o, s.place(ctx, o)
	}
	switch {
	case errors.Is(err, producer.ErrExists), err == nil && stored != o:
		http.Error(w, "another order has this key", http.StatusUnprocessableEntity)
	case err == nil, errors.Is(err, producer.ErrAlreadyCommitted):
		w.WriteHeader(http.StatusCreated)
	case errors.Is(err, producer.ErrRolledBack):
		http.Error(w, "this order was given up; order with a new key", http.StatusConflict)
	default:
		slog.Warn("order not known to be placed; the client repeats it", "order", o.ID, "cause", err)
		w.Header().Set("Retry-After", "1")
		http.Error(w, "repeat the order with the same key", http.StatusServiceUnavailable)
	}
}

// place stores an order and announces it to other services: one transaction, and one message.
func (s *shop) place(ctx context.Context, o order) error {
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.markers.Send(ctx, s.producer, producer.Message{
		ID: o.ID, Exchange: "shop", RoutingKey: "order.placed", ContentType: "application/json", Body: body,
	}, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `INSERT INTO orders (id, item) VALUES (?, ?)`, o.ID, o.Item)
		return err // after a deadlock or a lost connection the order's key stays usable
	})
}

// look finds the order of a key.
func (s *shop) look(ctx context.Context, id string) (o order, err error) {
	err = s.db.QueryRowContext(ctx, `SELECT id, item FROM orders WHERE id = ?`, id).Scan(&o.ID, &o.Item)
	return o, err
}
