package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/msghandler/msghandler/examples/database"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
)

// The errors of the business.
var (
	errSoldOut = errors.New("sold out")
	errOther   = errors.New("another order has this key")
	errNoOrder = errors.New("no such order")
)

// order is an order and the body of its message. A repeated request must give the same body, so the body has no time.
type order struct {
	ID       string `json:"id"`
	Item     string `json:"item"`
	Quantity int    `json:"quantity"`
}

type service struct {
	db       *database.DB
	markers  *sqlmarker.Store
	producer *producer.Producer
}

func newService(ctx context.Context, c config, db *database.DB) (*service, error) {
	markers, err := sqlmarker.New(sqlmarker.Config{
		DB: db.DB, Dialect: db.Dialect, Producer: "orders", BeginTimeout: beginTimeout, TxOptions: db.TxOptions(),
	})
	if err != nil {
		return nil, err
	}
	if err := errors.Join(markers.Migrate(ctx), migrate(ctx, db)); err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	transport, err := c.transport()
	if err != nil {
		return nil, err
	}
	p, err := producer.New(producer.Config{
		Name: "orders", Coordinator: c.coordinator, Markers: markers, SendTimeout: sendTimeout,
		TLS: transport, TokenFile: c.tokenFile,
	})
	return &service{db: db, markers: markers, producer: p}, err
}

// migrate makes the tables of the business, with something to sell.
func migrate(ctx context.Context, db *database.DB) error {
	for _, statement := range []string{
		`CREATE TABLE IF NOT EXISTS orders (
			id ` + db.Key() + ` PRIMARY KEY, item VARCHAR(64) NOT NULL, quantity INTEGER NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS stock (item VARCHAR(64) PRIMARY KEY, quantity INTEGER NOT NULL)`,
		`INSERT INTO stock SELECT 'book', 1000000 WHERE NOT EXISTS (SELECT * FROM stock WHERE item = 'book')`,
		`INSERT INTO stock SELECT 'painting', 1 WHERE NOT EXISTS (SELECT * FROM stock WHERE item = 'painting')`,
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}

// place stores an order and announces it, in one transaction. It may be repeated with the same order at any time.
func (s *service) place(ctx context.Context, o order) error {
	switch stored, err := s.look(ctx, o.ID); {
	case err == nil && stored == o:
		return nil // by an earlier request, and announced
	case err == nil:
		return errOther
	case !errors.Is(err, errNoOrder):
		return err
	}
	body, err := json.Marshal(o)
	if err != nil {
		return err
	}
	return s.markers.Send(ctx, s.producer, producer.Message{
		ID: o.ID, Exchange: "orders", RoutingKey: "order.placed", ContentType: "application/json", Body: body,
	}, func(ctx context.Context, tx *sql.Tx) error { return s.store(ctx, tx, o) })
}

// store is the business: everything through tx, which it neither commits nor rolls back.
func (s *service) store(ctx context.Context, tx *sql.Tx, o order) error {
	taken, err := tx.ExecContext(ctx,
		s.db.SQL(`UPDATE stock SET quantity = quantity - ? WHERE item = ? AND quantity >= ?`), o.Quantity, o.Item, o.Quantity)
	if err != nil {
		return err
	}
	switch n, err := taken.RowsAffected(); {
	case err != nil:
		return err
	case n == 0:
		return errSoldOut // decided: the message is rolled back, and the key is used up
	}
	_, err = tx.ExecContext(ctx, s.db.SQL(`INSERT INTO orders (id, item, quantity) VALUES (?, ?, ?)`),
		o.ID, o.Item, o.Quantity)
	return err
}

// look finds an order. After any error except errNoOrder nothing was done, and the key is usable.
func (s *service) look(ctx context.Context, id string) (o order, err error) {
	err = s.db.QueryRowContext(ctx, s.db.SQL(`SELECT id, item, quantity FROM orders WHERE id = ?`), id).
		Scan(&o.ID, &o.Item, &o.Quantity)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return o, errNoOrder
	case err != nil:
		return o, fmt.Errorf("%w: %w", producer.ErrSendAgain, err)
	}
	return o, nil
}
