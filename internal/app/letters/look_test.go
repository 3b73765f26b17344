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
	if !errors.As(err, &refused) || !strings.Contains(refused.Text, "msghandler dlq show orders/10005 --queue dead") {
		t.Errorf("got %v", err)
	}
	all := pages.LetterChange{LetterQuery: pages.LetterQuery{Queue: "dead"}, Discard: true}
	if left, err := desk.CountLetters(t.Context(), all); left.Count != maxLooked+10 {
		t.Errorf("%d letters are left: %v", left.Count, err)
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

// Any program that may write to the queue of dead letters chooses the producer and the exchange of a letter.
func TestForgedDestinationStays(t *testing.T) {
	desk := newDesk(t, 3)
	var asked int
	desk.queues[0].MayPublish = func(_, _, routingKey string) error {
		if asked++; routingKey == "gone" && asked%3 == 2 { // the second letter, of the count and of the change
			return errors.New("payroll is for others")
		}
		return nil
	}
	replay := pages.LetterChange{LetterQuery: pages.LetterQuery{Queue: "dead"}, Limit: 3}
	tally, err := desk.CountLetters(t.Context(), replay)
	if err != nil || tally.Count != 3 || len(tally.Destinations) != 2 ||
		tally.Destinations[0] != (pages.LetterDestination{
			Exchange: "(default)", RoutingKey: "gone", Letters: 1, Refused: "payroll is for others",
		}) || tally.Destinations[1].Letters != 2 {
		t.Errorf("counted %+v, %v", tally, err)
	}
	_, result, err := desk.Change(t.Context(), replay)
	if err != nil || !strings.Contains(result.Problem, "replay orders/1: payroll is for others") {
		t.Errorf("got %+v, %v", result, err)
	}
}
