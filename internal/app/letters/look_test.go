package letters

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/console/pages"
	"github.com/msghandler/msghandler/internal/embedded/amqpbroker"
)

// newDesk is a desk in front of a queue with n letters, whose first queue is gone, on an embedded broker.
func newDesk(t *testing.T, n int) *Desk {
	t.Helper()
	broker := amqpbroker.New(amqpbroker.Config{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = broker.Close() })
	address, err := broker.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	url := "amqp://guest:guest@" + address + "/"
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("dead", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := ch.PublishWithContext(t.Context(), "", "dead", false, false, amqp.Publishing{
			AppId: "orders", MessageId: fmt.Sprint(i), Body: []byte("body"),
			Headers: amqp.Table{consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "gone"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	// The broker has taken all of them when it answers.
	if q, err := ch.QueueDeclarePassive("dead", true, false, false, false, nil); err != nil || q.Messages != n {
		t.Fatal(q, err)
	}
	desk, err := NewDesk([]Source{{Name: "dead", Queue: "dead", URL: url}})
	if err != nil {
		t.Fatal(err)
	}
	return desk
}

// The page of a letter looks no further than a list does: each letter before it is taken from the queue.
func TestLetterBeyondTheBoundIsNotFound(t *testing.T) {
	desk := newDesk(t, maxLooked+10)
	if l, err := desk.Get(t.Context(), "dead", "orders/1000"); err != nil || string(l.Body) != "body" {
		t.Errorf("got %v, %v", l, err)
	}
	var refused pages.RefusedError
	_, err := desk.Get(t.Context(), "dead", fmt.Sprintf("orders/%d", maxLooked+5))
	if !errors.As(err, &refused) || !strings.Contains(refused.Text, "msghandler dlq show orders/2005 --queue dead") {
		t.Errorf("got %v", err)
	}
	if count, _, err := desk.CountLetters(t.Context(), pages.LetterQuery{Queue: "dead"}); count != maxLooked+10 {
		t.Errorf("%d letters are left: %v", count, err)
	}
}

// A refused replay names some letters, and counts the others.
func TestRefusedReplaysAreCounted(t *testing.T) {
	desk := newDesk(t, 40)
	_, result, err := desk.Change(t.Context(), pages.LetterChange{
		LetterQuery: pages.LetterQuery{Queue: "dead"}, Limit: 40, Reason: "x",
	})
	if err != nil || result.Done != 0 || strings.Count(result.Problem, "NO_ROUTE") != maxProblems ||
		!strings.HasSuffix(result.Problem, "\nand 35 more") {
		t.Errorf("got %+v, %v", result, err)
	}
}
