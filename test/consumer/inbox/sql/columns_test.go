package sql_test

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/consumer/envelope"
	sqlinbox "github.com/msghandler/msghandler/consumer/inbox/sql"
)

// The row says beside the id who consumed the message, by which key it came and which event it was.
func TestInboxRowNamesEventAndConsumer(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		db := d.open(t)
		body, err := envelope.Marshal(envelope.Event[int]{ID: "1", Type: "ORDER_PAID", Payload: 1})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range []*consumer.Message{
			{ID: "1", Producer: "orders", RoutingKey: "order.paid", ContentType: envelope.ContentType, Body: body},
			{ID: "2", Producer: "orders", RoutingKey: "gr\xf6\xdfe\x00" + strings.Repeat("x", 300), Body: []byte("no event")},
		} {
			if err := d.inbox(t, db, nil).Handler(d.pay).Handle(t.Context(), m); err != nil {
				t.Fatalf("%s: %v", m.ID, err)
			}
		}
		if got, want := inboxRows(t, db), "payments orders/1 order.paid ORDER_PAID\npayments orders/2 - -\n"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		named := d.inbox(t, db, func(c *sqlinbox.Config) {
			c.EventType = func(*consumer.Message) string { return "ours" }
		})
		if err := named.Handler(d.pay).Handle(t.Context(), order("3")); err != nil {
			t.Fatal(err)
		}
		if got := inboxRows(t, db); !strings.HasSuffix(got, "payments orders/3 - ours\n") {
			t.Errorf("%q", got)
		}
	})
}

func inboxRows(t *testing.T, db *sql.DB) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), `SELECT consumer, message,
		COALESCE(routing_key, '-'), COALESCE(event_type, '-') FROM msghandler_inbox ORDER BY message`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all strings.Builder
	for rows.Next() {
		var consumerName, message []byte
		var key, event string
		if err := rows.Scan(&consumerName, &message, &key, &event); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&all, "%s %s %s %s\n", consumerName, message, key, event)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func TestDroppedDuplicateIsNotLoggedHandled(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, d database) {
		var text bytes.Buffer
		h := consumer.Chain(d.inbox(t, d.open(t), nil).Handler(d.pay),
			consumer.Logging(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))))
		if err := h.Handle(t.Context(), order("1")); err != nil {
			t.Fatal(err)
		}
		if err := h.Handle(t.Context(), order("1")); !errors.Is(err, consumer.ErrDuplicate) {
			t.Fatal(err)
		}
		said := text.String()
		if strings.Count(said, "message handled") != 1 ||
			!strings.Contains(said, `level=DEBUG msg="event already handled, duplicate ignored" message_id=orders/1`) {
			t.Errorf("a message and its duplicate are logged as\n%s", said)
		}
	})
}
