package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
)

// controlQueue suspends or resumes the process of a queue of the default virtual host. A suspended queue takes messages
// and does not confirm.
func controlQueue(broker *servers.RabbitServer, queue, how string) {
	lookup := fmt.Sprintf(`{ok, Q} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"/">>, queue, <<"%s">>))`, queue)
	broker.Ctl("eval", fmt.Sprintf(`%s, sys:%s(amqqueue:get_pid(Q)).`, lookup, how))
}

// arrival is a group of outcomes with its time.
type arrival struct {
	after   time.Duration
	places  []int
	results []publish.Result
}

// arrivals publishes a batch and returns its outcomes as they came.
func arrivals(t *testing.T, p *rabbitmq.Publisher, batch []publish.Message) (all []arrival) {
	began := time.Now()
	p.Publish(t.Context(), batch, func(places []int, results []publish.Result) {
		all = append(all, arrival{time.Since(began), places, results})
	})
	return all
}

// stalledQueue has one queue of an exchange stop confirming while others on the same exchange go on.
func stalledQueue(t *testing.T, broker *servers.RabbitServer) {
	d := declare(t, broker.URL)
	d.queue("stuck", "e", "stuck", nil)
	config := quick(broker.URL)
	config.ConfirmTimeout = 5 * time.Second
	p := publisher(t, config)
	controlQueue(broker, "stuck", "suspend")
	resume := sync.OnceFunc(func() { controlQueue(broker, "stuck", "resume") })
	t.Cleanup(resume)

	// The very first message to the exchange has no answer: the others follow anyway.
	batch := append([]publish.Message{message(-2, "e", "stuck")}, messages(100, "e", "k")...)
	got := arrivals(t, p, batch)
	if len(got) < 2 {
		t.Fatalf("the outcomes came all at once: %v", count(got[0].results))
	}
	last := got[len(got)-1]
	if len(last.places) != 1 || last.places[0] != 0 || last.results[0].Outcome != publish.Unsure {
		t.Errorf("the last to come was %v with %v", last.places, last.results)
	}
	var others []publish.Result
	for _, a := range got[:len(got)-1] {
		others = append(others, a.results...)
		if a.after > config.ConfirmTimeout-time.Second {
			t.Errorf("outcomes came after %v, with the stalled queue's", a.after)
		}
	}
	expect(t, others, publish.Acked)

	// From now on a single message tries the queue, and the others are not sent. The shared channel serves on: messages
	// in flight there are answered, and none is in doubt.
	highest := channels(broker)
	for range 2 {
		// A message that AMQP cannot carry says nothing of the queue.
		bad := message(-4, "e", "stuck")
		bad.Headers = map[string]string{strings.Repeat("x", 256): ""}
		expect(t, []publish.Result{outcome(t, p, bad)}, publish.Refused)
		stuck := messages(50, "e", "stuck")
		for i := range stuck {
			stuck[i].Name.Producer = "stuck"
		}
		mixed := slices.Concat(stuck, messages(100, "e", "k"))
		results := publishAll(t.Context(), p, mixed)
		counts := count(results[:50])
		if counts[publish.Unsure] != 1 || counts[publish.Unsent] != 49 {
			t.Errorf("to the stalled queue: %v", counts)
		}
		for _, r := range results[:50] {
			if r.Outcome == publish.Unsent && !errors.Is(r.Cause, publish.ErrStalled) {
				t.Errorf("not sent because of: %v", r.Cause)
			}
		}
		expect(t, results[50:], publish.Acked)
	}
	if now := channels(broker); now > highest {
		t.Errorf("channel %d is open, %d before: a missing answer closed a channel", now, highest)
	}

	// Nor does the question for the depth of the queue hang.
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := rabbitmq.Depths(ctx, config, "q", "stuck"); err == nil {
		t.Error("the depth of a silent queue was told")
	}

	resume()
	servers.Eventually(t, 10*time.Second, "the queue confirms again", func() bool {
		return outcome(t, p, message(-3, "e", "stuck")).Outcome == publish.Acked
	})
	expect(t, publishAll(t.Context(), p, messages(100, "e", "stuck")), publish.Acked)
}

// stalledHeaderKind has one queue of a headers exchange stop confirming. Messages for the other queues, with the same
// routing key, go on.
func stalledHeaderKind(t *testing.T, broker *servers.RabbitServer) {
	d := declare(t, broker.URL)
	d.must(d.channel.ExchangeDeclare("h", amqp.ExchangeHeaders, true, false, false, false, nil))
	for _, queue := range []string{"stuck-kind", "other-kind"} {
		_, err := d.channel.QueueDeclare(queue, true, false, false, false, nil)
		d.must(err)
		d.must(d.channel.QueueBind(queue, "", "h", false, amqp.Table{"x-match": "all", "to": queue}))
	}
	to := func(queue string, first, n int) []publish.Message {
		batch := make([]publish.Message, n)
		for i := range batch {
			batch[i] = message(first+i, "h", "k")
			batch[i].Headers = map[string]string{"to": queue}
		}
		return batch
	}
	p := publisher(t, quick(broker.URL))
	controlQueue(broker, "stuck-kind", "suspend")
	resume := sync.OnceFunc(func() { controlQueue(broker, "stuck-kind", "resume") })
	t.Cleanup(resume)
	expect(t, publishAll(t.Context(), p, to("stuck-kind", 0, 1)), publish.Unsure)

	results := publishAll(t.Context(), p, append(to("stuck-kind", 0, 50), to("other-kind", 50, 100)...))
	if counts := count(results[:50]); counts[publish.Unsure] != 1 || counts[publish.Unsent] != 49 {
		t.Errorf("to the stalled queue: %v", counts)
	}
	expect(t, results[50:], publish.Acked)
	resume()
	servers.Eventually(t, 10*time.Second, "the queue confirms again", func() bool {
		return publishAll(t.Context(), p, to("stuck-kind", 0, 1))[0].Outcome == publish.Acked
	})
	expect(t, publishAll(t.Context(), p, to("stuck-kind", 0, 50)), publish.Acked)
}

// channels is the highest number of an open channel: a new channel gets a higher number.
func channels(broker *servers.RabbitServer) (highest int) {
	for _, field := range strings.Fields(broker.Ctl("list_channels", "number")) {
		if n, err := strconv.Atoi(field); err == nil {
			highest = max(highest, n)
		}
	}
	return highest
}
