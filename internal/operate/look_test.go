package operate

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/internal/halfmsg"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	"github.com/msghandler/msghandler/test/must"
)

// patient bounds a desk by letters, and by no time: a slow machine ends no look.
var patient = bounds{look: time.Hour, walk: time.Hour, looked: 100, records: 100}

// newDeskOf is a desk in front of a queue with n letters, whose first queue is gone, on an embedded broker.
func newDeskOf(t *testing.T, n int) *Desk {
	t.Helper()
	broker := amqpbroker.New(amqpbroker.Config{Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() { _ = broker.Close() })
	address, err := broker.Listen("127.0.0.1:0")
	must.Succeed(t, err)
	url := "amqp://guest:guest@" + address + "/"
	conn, err := amqp.Dial(url)
	must.Succeed(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must.Succeed(t, err)
	if _, err := ch.QueueDeclare("dead", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		must.Succeed(t, ch.PublishWithContext(t.Context(), "", "dead", false, false, amqp.Publishing{
			AppId: "orders", MessageId: fmt.Sprint(i), Body: []byte("body"),
			Headers: amqp.Table{consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "gone"},
		}))
	}
	// The broker has taken all of them when it answers.
	if q, err := ch.QueueDeclarePassive("dead", true, false, false, false, nil); err != nil || q.Messages != n {
		t.Fatal(q, err)
	}
	desk, err := newDesk([]Source{{Name: "dead", Queue: "dead", URL: url}}, patient)
	must.Succeed(t, err)
	return desk
}

// everyLetter selects each letter of a queue.
func everyLetter() *adminv1.DeadLetterSelection {
	return &adminv1.DeadLetterSelection{Filter: &adminv1.DeadLetterFilter{}}
}

func count(t *testing.T, desk *Desk) *adminv1.CountDeadLettersResponse {
	t.Helper()
	counted, err := desk.Count(t.Context(), &adminv1.CountDeadLettersRequest{Queue: "dead", Selection: everyLetter()})
	must.Succeed(t, err)
	return counted
}

// An empty filter is any: a group of letters with an empty routing key has a filter of its own.
func TestEmptyFieldsAreSelected(t *testing.T) {
	t.Parallel()
	selects := matcher(nil, &adminv1.DeadLetterFilter{RoutingKey: halfmsg.EmptyField, Consumer: halfmsg.EmptyField})
	var neither, keyed, consumed consumer.Letter
	keyed.RoutingKey, consumed.Queue = "paid", "stock"
	if !selects(&neither) || selects(&keyed) || selects(&consumed) {
		t.Errorf("selected are %t, %t, %t", selects(&neither), selects(&keyed), selects(&consumed))
	}
}

// The page of a letter looks no further than a list does: each letter before it is taken from the queue.
func TestLetterBeyondBoundIsNotFound(t *testing.T) {
	desk := newDeskOf(t, patient.looked+10)
	get := func(id string) (*adminv1.GetDeadLetterResponse, error) {
		return desk.Get(t.Context(), &adminv1.GetDeadLetterRequest{Queue: "dead", Producer: "orders", Id: id})
	}
	if l, err := get("50"); err != nil || string(l.GetLetter().GetMessage().GetBody()) != "body" {
		t.Errorf("got %v, %v", l, err)
	}
	_, err := get(fmt.Sprint(patient.looked + 5))
	if !errors.Is(err, halfmsg.ErrNoDeadLetter) ||
		!strings.Contains(err.Error(), "msghandler dlq show orders/105 --direct --queue dead") {
		t.Errorf("got %v", err)
	}
	if counted := count(t, desk); counted.GetCount() != int64(patient.looked) || !counted.GetMore() {
		t.Errorf("counted %d, more %t", counted.GetCount(), counted.GetMore())
	}
	desk.bounds, desk.queues[0].bounds = alone, alone
	if counted := count(t, desk); counted.GetCount() != int64(patient.looked)+10 || counted.GetMore() {
		t.Errorf("a command of its own counted %d, more %t", counted.GetCount(), counted.GetMore())
	}
}

// The pages of a list have each letter once, and no page more than was asked for.
func TestPagesHoldEachLetterOnce(t *testing.T) {
	desk := newDeskOf(t, 25)
	request, seen := &adminv1.ListDeadLettersRequest{Queue: "dead", PageSize: 10}, map[string]int{}
	for pages := 1; ; pages++ {
		page, err := desk.List(t.Context(), request)
		if err != nil || len(page.GetLetters()) > 10 {
			t.Fatal(page, err)
		}
		for _, l := range page.GetLetters() {
			seen[l.GetMessage().GetId()]++
		}
		if request.PageToken = page.GetNextPageToken(); request.GetPageToken() == "" {
			if pages != 3 || len(seen) != 25 {
				t.Errorf("%d pages have %d letters", pages, len(seen))
			}
			return
		}
	}
}

// A refused replay names some letters, and counts the others.
func TestRefusedReplaysAreCounted(t *testing.T) {
	desk := newDeskOf(t, 40)
	result, err := desk.Replay(t.Context(), &adminv1.ReplayDeadLettersRequest{
		Queue: "dead", Selection: everyLetter(), Limit: 40,
	}, func(string, string, string) {})
	if err != nil || result.GetChanged() != 0 || strings.Count(result.GetProblem(), "NO_ROUTE") != maxProblems ||
		!strings.HasSuffix(result.GetProblem(), "\nand 35 more") {
		t.Errorf("got %v, %v", result, err)
	}
}

// Any program that may write to the queue of dead letters chooses the producer and the exchange of a letter.
func TestForgedDestinationStays(t *testing.T) {
	desk := newDeskOf(t, 3)
	var asked int
	desk.queues[0].MayPublish = func(_, _, routingKey string) error {
		if asked++; routingKey == "gone" && asked%3 == 2 { // the second letter, of the count and of the change
			return errors.New("payroll is for others")
		}
		return nil
	}
	counted := count(t, desk)
	to := counted.GetDestinations()
	if counted.GetCount() != 3 || len(to) != 2 || to[0].GetRefusal() != "payroll is for others" ||
		to[0].GetRoutingKey() != "gone" || to[0].GetCount() != 1 || to[1].GetCount() != 2 {
		t.Errorf("counted %v", counted)
	}
	result, err := desk.Replay(t.Context(), &adminv1.ReplayDeadLettersRequest{
		Queue: "dead", Selection: everyLetter(), Limit: 3,
	}, func(string, string, string) {})
	if err != nil || !strings.Contains(result.GetProblem(), "replay orders/1: payroll is for others") {
		t.Errorf("got %v, %v", result, err)
	}
}

// Any program may write bytes that are no text into a letter. Without a replacement no answer could be sent.
func TestLetterOfForeignBytesIsSent(t *testing.T) {
	t.Parallel()
	const foreign = "a\xff"
	l := &consumer.Letter{Queue: foreign, Reason: foreign}
	l.Producer, l.ID, l.FirstCause, l.Exchange, l.RoutingKey = foreign, foreign, foreign, foreign, foreign
	l.ContentType, l.Headers, l.Retries = foreign, map[string]string{foreign: foreign}, math.MaxInt
	by, to := groups{}, destinations{}
	by.add(l)
	to.add(l, errors.New(foreign))
	all, _ := by.all()
	for what, answer := range map[string]proto.Message{
		"letter": letterOf(l), "group": all[0], "destination": to.all()[0],
	} {
		if _, err := proto.Marshal(answer); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	shown := letterOf(l)
	name := &adminv1.MessageName{Producer: shown.GetProducer(), Id: shown.GetMessage().GetId()}
	if !matcher([]*adminv1.MessageName{name}, nil)(l) {
		t.Error("the dead letter cannot be named by its shown name")
	}
}

func TestUnknownQueueNamesTheRemedy(t *testing.T) {
	t.Parallel()
	for names, want := range map[string]struct {
		kind error
		text string
	}{
		"":              {halfmsg.ErrNoDeadLetterQueues, "set dead_letters.NAME.queue and restart the coordinators"},
		"payments":      {halfmsg.ErrNoDeadLetter, "but payments: name one of them"},
		"payments dead": {nil, ""},
	} {
		desk := &Desk{}
		for _, name := range strings.Fields(names) {
			desk.queues = append(desk.queues, newQueue(Source{Name: name, Queue: "q"}, nil, shared))
		}
		_, err := desk.find("dead")
		if !errors.Is(err, want.kind) || err != nil && !strings.Contains(err.Error(), want.text) {
			t.Errorf("%q: %v", names, err)
		}
	}
	entry := newQueue(Source{Name: "payments", Queue: "payments.dead"}, nil, shared)
	desk := &Desk{queues: []*queue{entry}}
	if _, err := desk.find("payments.dead"); err == nil {
		t.Error("a queue of another broker is found by its own name")
	}
	entry.Default = true
	if q, err := desk.find("payments.dead"); q != entry {
		t.Errorf("the queue of the default broker: %v", err)
	}
}

func TestDeskUsesPresentURL(t *testing.T) {
	t.Parallel()
	now := "amqp://orders:second@127.0.0.1/"
	q := newQueue(Source{Queue: "payments.dead", Present: func() string { return now }}, nil, shared)
	if q.letters() == nil {
		t.Error("the URL of now is not used")
	}
	if now = "no URL"; q.letters() != nil {
		t.Error("a URL that is none is used")
	}
}
