package rabbitmq_test

import (
	"flag"
	"fmt"
	"log/slog"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/test/servers"
)

var manyLetters = flag.Int("letters", 20_000, "how many dead letters a test looks at")

// A look at many letters costs the broker a time in proportion to their number, and the next dead letter finds its
// queue free. A basic.get for each letter, and one basic.nack for all, took 15 minutes for 20,000 letters of a quorum
// queue, and its consumers could not dead-letter meanwhile.
func TestLookAtManyLettersIsLinear(t *testing.T) {
	for _, kind := range []string{amqp.QueueTypeClassic, amqp.QueueTypeQuorum} {
		t.Run(kind, func(t *testing.T) { testManyLetters(t, servers.RabbitMQ(t).URL, kind) })
	}
	t.Run("embedded", func(t *testing.T) {
		broker := amqpbroker.New(amqpbroker.Config{Logger: slog.New(slog.DiscardHandler)})
		t.Cleanup(func() { _ = broker.Close() })
		address, err := broker.Listen("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		testManyLetters(t, "amqp://guest:guest@"+address+"/", amqp.QueueTypeClassic)
	})
}

func testManyLetters(t *testing.T, url, kind string) {
	const parts = 8
	few := max(*manyLetters/parts, 1)
	ofFew, _, _ := lookAt(t, url, kind, few)
	ofMany, next, fill := lookAt(t, url, kind, *manyLetters)
	t.Logf("%s: %d letters %s, %d letters %s; the next dead letter: %s; all dead letters: %s",
		kind, few, ofFew, *manyLetters, ofMany, next, fill)
	// A busy machine may take some times as long; quadratic would be parts times as long for each letter.
	if ratio := float64(ofMany) / float64(max(ofFew, 250*time.Millisecond)); ratio > parts*parts/2 {
		t.Errorf("a look at %d letters took %.0f times as long as a look at %d: %s and %s",
			*manyLetters, ratio, few, ofMany, ofFew)
	}
	if next > ofMany+fill {
		t.Errorf("after the look the queue took the next dead letter only after %s, and all before in %s", next, fill)
	}
}

// lookAt measures a look at n letters, the time until the queue has confirmed the next letter, and the time that all
// letters took before.
func lookAt(t *testing.T, url, kind string, n int) (look, next, fill time.Duration) {
	t.Helper()
	conn, err := amqp.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	queue := fmt.Sprintf("many-%s-%d", kind, n)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{amqp.QueueTypeArg: kind}); err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	publish := func(id int) *amqp.DeferredConfirmation {
		confirmed, err := ch.PublishWithDeferredConfirmWithContext(t.Context(), "", queue, true, false,
			amqp.Publishing{MessageId: fmt.Sprint(id), AppId: "orders", DeliveryMode: amqp.Persistent, Body: make([]byte, 200)})
		if err != nil {
			t.Fatal(err)
		}
		return confirmed
	}
	began := time.Now()
	var last *amqp.DeferredConfirmation
	for id := range n {
		last = publish(id)
	}
	last.Wait()
	fill = time.Since(began)
	depth := func() int {
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages
	}
	servers.Eventually(t, patience, "all letters", func() bool { return depth() == n })
	dead, err := rabbit.NewDeadLetters(url, nil, queue)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	began = time.Now()
	if err := dead.Visit(t.Context(), func(*consumer.Letter) bool { seen++; return true }); err != nil || seen != n {
		t.Fatalf("saw %d of %d letters, %v", seen, n, err)
	}
	look = time.Since(began)
	began = time.Now()
	publish(n).Wait()
	next = time.Since(began)
	servers.Eventually(t, patience, "all letters, and the next", func() bool { return depth() == n+1 })
	if n < *manyLetters {
		lookAgain(t, dead, n+1, depth)
	}
	return look, next, fill
}

// lookAgain looks at n letters several times, and discards them. Before 4.3, RabbitMQ counts a return to a quorum
// queue, and each second look replaces the letters by copies. The channel of such a queue forgets acknowledgements that
// are on their way when it is closed: originals then came back beside their copies, and discarded letters came back.
func lookAgain(t *testing.T, dead *consumer.DeadLetters, n int, depth func() int) {
	t.Helper()
	for range 3 {
		seen := 0
		err := dead.Visit(t.Context(), func(*consumer.Letter) bool { seen++; return true })
		if seen != n || err != nil {
			t.Fatalf("a further look saw %d of %d letters: %v", seen, n, err)
		}
		servers.Eventually(t, patience, "a look returns all letters", func() bool { return depth() == n })
	}
	removed, err := dead.DiscardSelected(t.Context(), consumer.Selection{})
	if removed != n || err != nil {
		t.Errorf("discarded %d of %d letters: %v", removed, n, err)
	}
	servers.Eventually(t, patience, "no letter is left", func() bool { return depth() == 0 })
}
