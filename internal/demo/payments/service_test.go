package payments

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/demo/database"
)

func TestOrderIsBookedAndShippedOnce(t *testing.T) {
	t.Parallel()
	db, err := database.Open("sqlite:" + filepath.Join(t.TempDir(), "payments.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s, err := Open(t.Context(), Config{URL: "amqp://127.0.0.1:1/", Queue: "payments", Exchange: "orders", Database: db})
	if err != nil {
		t.Fatal(err)
	}
	handle := func(id, body string, attempt int) error {
		m := &consumer.Message{ID: id, Producer: "orders", Attempt: attempt, Body: []byte(body)}
		return s.handler().Handle(t.Context(), m)
	}
	var reject *consumer.RejectError
	for _, nonsense := range []string{
		`{`, `{}`, `{"order_id":"1"}`, `{"order_id":"2","items":[{"sku":"tea","quantity":1}]}`,
	} {
		if err := handle("1", nonsense, 1); !errors.As(err, &reject) {
			t.Errorf("%s: %v", nonsense, err)
		}
	}
	const order = `{"order_id":"1","amount_cents":1590,"items":[{"sku":"tea","quantity":2},{"sku":"cup","quantity":1}]}`
	if err := handle("1", order, 1); err != nil {
		t.Fatal(err)
	}
	if err := handle("1", order, 2); !errors.Is(err, consumer.ErrDuplicate) {
		t.Errorf("a copy: %v", err)
	}
	if now, err := s.Status(t.Context()); err != nil || now != (Status{Shipped: 1, Copies: 1}) {
		t.Errorf("%+v, %v", now, err)
	}
	var cents, pieces int
	if err := db.QueryRowContext(t.Context(), `SELECT (SELECT SUM(amount_cents) FROM demo_payments),
		(SELECT SUM(quantity) FROM demo_shipments)`).Scan(&cents, &pieces); err != nil || cents != 1590 || pieces != 3 {
		t.Errorf("%d cents, %d pieces, %v", cents, pieces, err)
	}
}
