package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/publish/rabbitmq"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMessageArrivesAsSent(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})

	sent := message(7, "e", "k")
	sent.ContentType = "application/json"
	sent.Headers = map[string]string{"traceparent": "00-1-2-03", "msghandler-attempt": "forged"}
	sent.Attempt, sent.Trace = 3, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // the header wins
	expect(t, publish(t.Context(), p, []halfmsg.Publishing{sent}), halfmsg.Acked)

	got := d.take("q", 1)[0]
	if got.MessageId != "7" || got.AppId != "orders" || got.ContentType != "application/json" ||
		got.DeliveryMode != amqp.Persistent || !got.Timestamp.Equal(sent.DueAt) || !bytes.Equal(got.Body, sent.Body) {
		t.Errorf("got %+v", got)
	}
	h := got.Headers
	if h["msghandler-attempt"] != int64(3) || h["traceparent"] != "00-1-2-03" || len(h) != 2 {
		t.Errorf("got the headers %v", h)
	}
}

func TestTraceBecomesHeader(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})
	traced, plain := message(1, "e", "k"), message(2, "e", "k")
	traced.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	expect(t, publish(t.Context(), p, []halfmsg.Publishing{traced, plain}), halfmsg.Acked)
	for _, got := range d.take("q", 2) {
		trace, has := got.Headers["traceparent"]
		if got.MessageId == "1" && trace != traced.Trace || got.MessageId == "2" && has {
			t.Errorf("message %s has the headers %v", got.MessageId, got.Headers)
		}
	}
}

// Returned messages are acknowledged as well. Ten thousand from many callers, half of them unroutable, many of them
// with the same id in flight several times.
func TestReturnsMatchTheirConfirmations(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "routed", nil)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}, ConfirmTimeout: time.Minute})

	const callers, size = 20, 500
	var group sync.WaitGroup
	routed := make([]int, callers)
	for caller := range callers {
		group.Go(func() {
			batch := messages(size, "e", "routed")
			for i := range batch {
				batch[i].Attempt = 1 + rand.IntN(3)
				if rand.IntN(2) == 0 {
					batch[i].RoutingKey = "nowhere"
				} else {
					routed[caller]++
				}
			}
			for i, r := range publish(t.Context(), p, batch) {
				want := halfmsg.Acked
				if batch[i].RoutingKey == "nowhere" {
					want = halfmsg.Refused
				}
				if r.Outcome != want {
					t.Errorf("message %d to %s is %v: %v", i, batch[i].RoutingKey, r.Outcome, r.Cause)
				}
			}
		})
	}
	group.Wait()
	total := 0
	for _, n := range routed {
		total += n
	}
	d.take("q", total)
}

func TestNackIsRefusal(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("full", "e", "full", amqp.Table{"x-max-length": int64(1), "x-overflow": "reject-publish"})
	d.queue("roomy", "e", "roomy", nil)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})

	servers.Eventually(t, 10*time.Second, "the queue is full", func() bool {
		r := outcome(t, p, message(0, "e", "full"))
		return r.Outcome == halfmsg.Refused && strings.Contains(r.Cause.Error(), "nack")
	})
	batch := append(messages(50, "e", "full"), messages(50, "e", "roomy")...)
	results := publish(t.Context(), p, batch)
	expect(t, results[:50], halfmsg.Refused)
	expect(t, results[50:], halfmsg.Acked)
}

func TestMissingExchangeStopsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("good")
	d.queue("q", "good", "k", nil)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})

	batch := messages(600, "good", "k")
	for i := range batch {
		if i%3 == 0 {
			batch[i].Exchange = fmt.Sprintf("missing %d", i%5)
		}
	}
	for i, r := range publish(t.Context(), p, batch) {
		want := halfmsg.Acked
		if i%3 == 0 {
			want = halfmsg.Refused
		}
		if r.Outcome != want {
			t.Fatalf("message %d to %s is %v: %v", i, batch[i].Exchange, r.Outcome, r.Cause)
		}
	}
	d.take("q", 400)

	d.exchange("missing 0")
	d.queue("late", "missing 0", "k", nil)
	servers.Eventually(t, 5*time.Second, "the exchange that came later is used", func() bool {
		return outcome(t, p, message(1, "missing 0", "k")).Outcome == halfmsg.Acked
	})
}

func TestDeletedExchangeIsRejected(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	for _, name := range []string{"good", "doomed"} {
		d.exchange(name)
		d.queue(name, name, "k", nil)
	}
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})
	mixed := append(messages(100, "good", "k"), messages(100, "doomed", "k")...)
	for i := range mixed {
		mixed[i].Name.ID = fmt.Sprint(i)
	}
	expect(t, publish(t.Context(), p, mixed), halfmsg.Acked)

	d.must(d.channel.ExchangeDelete("doomed", false, false))
	settled := false
	for round := 0; !settled && round < 5; round++ {
		began := time.Now()
		results := publish(t.Context(), p, mixed)
		settled = count(results[:100])[halfmsg.Acked] == 100 && count(results[100:])[halfmsg.Refused] == 100
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("round %d took %v", round, took)
		}
		if n := count(results)[halfmsg.Acked]; round > 0 && n != 100 {
			t.Errorf("round %d: %v", round, count(results))
		}
	}
	if !settled {
		t.Error("the good ones are not acknowledged, or the others not refused")
	}
}

// The broker checks a routing key's permission only for some messages to an exchange. An exchange whose first message
// passed must not vouch for those.
func TestPoisonMessageIsIsolated(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	d := declare(t, vhost.URL)
	d.must(d.channel.ExchangeDeclare("e", amqp.ExchangeTopic, true, false, false, false, nil))
	d.queue("q", "e", "#", nil)
	user := limitedUser(t, vhost, ".*")
	user.allowTopics("e", "good.*")
	p := publisher(t, rabbitmq.Config{URLs: []string{user.url}})

	expect(t, publish(t.Context(), p, messages(1, "e", "good.first")), halfmsg.Acked)
	batch := messages(100, "e", "good.key")
	batch[50].RoutingKey = "bad.key"
	var results []halfmsg.PublishResult
	for range 3 {
		results = publish(t.Context(), p, batch)
		if results[50].Outcome == halfmsg.Refused {
			break
		}
	}
	if counts := count(results); results[50].Outcome != halfmsg.Refused || counts[halfmsg.Acked] != 99 {
		t.Errorf("got %v; the poison one: %v", counts, results[50])
	}
	expect(t, publish(t.Context(), p, messages(100, "e", "good.key")), halfmsg.Acked)
}

func TestRevokedPermissionIsNoticedAndRestored(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	d := declare(t, vhost.URL)
	for _, name := range []string{"good", "guarded"} {
		d.exchange(name)
		d.queue(name, name, "k", nil)
	}
	user := limitedUser(t, vhost, ".*")
	p := publisher(t, rabbitmq.Config{URLs: []string{user.url}})
	both := append(messages(20, "good", "k"), messages(20, "guarded", "k")...)
	for i := range both {
		both[i].Name.ID = fmt.Sprint(i)
	}
	expect(t, publish(t.Context(), p, both), halfmsg.Acked)

	user.allow("^good$")
	vhost.CloseConnections(2) // A channel remembers what it was permitted; a new one does not.
	servers.Eventually(t, 30*time.Second, "only the guarded ones are refused", func() bool {
		results := publish(t.Context(), p, both)
		return count(results[:20])[halfmsg.Acked] == 20 && count(results[20:])[halfmsg.Refused] == 20
	})
	user.allow(".*")
	servers.Eventually(t, 10*time.Second, "all are taken again", func() bool {
		return count(publish(t.Context(), p, both))[halfmsg.Acked] == len(both)
	})
}

func TestMessageUnfitForAMQPIsRefused(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})
	long := strings.Repeat("x", 256)

	batch := messages(7, "e", "k")
	batch[0].Exchange = long
	batch[1].RoutingKey = long
	batch[2].ContentType = long
	batch[3].Name.ID = long
	batch[4].Name.Producer = long
	batch[5].Headers = map[string]string{long: "v"}
	batch[6].Headers = map[string]string{"h": strings.Repeat("v", 200<<10)}
	results := publish(t.Context(), p, append(batch, messages(10, "e", "k")...))
	expect(t, results[:7], halfmsg.Refused)
	expect(t, results[7:], halfmsg.Acked)
}

func TestDefaultExchangeTakesLargeBodies(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	_, err := d.channel.QueueDeclare("q", true, false, false, false, nil)
	d.must(err)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})
	batch := messages(2, "", "q")
	batch[0].Body = nil
	batch[1].Body = bytes.Repeat([]byte("large "), 1<<20/6)
	expect(t, publish(t.Context(), p, batch), halfmsg.Acked)
	bodies := 0
	for _, delivery := range d.take("q", 2) {
		bodies += len(delivery.Body)
	}
	if bodies != len(batch[1].Body) {
		t.Errorf("%d bytes arrived, want %d", bodies, len(batch[1].Body))
	}
	if r := outcome(t, p, message(1, "", "no such queue")); r.Outcome != halfmsg.Refused {
		t.Errorf("got %v", r)
	}
}

func TestEndedContextSendsNothing(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}, Window: 1})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	results := publish(ctx, p, messages(2000, "e", "k"))
	counts := count(results)
	if counts[halfmsg.Unsent]+counts[halfmsg.Acked] != 2000 || counts[halfmsg.Unsent] == 0 {
		t.Errorf("got %v", counts)
	}
	d.take("q", counts[halfmsg.Acked])
}

func TestClosedPublisherSendsNothing(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	p := publisher(t, rabbitmq.Config{URLs: []string{url}})

	// What is on its way when Close comes is answered; no message is in doubt.
	answers := make(chan []halfmsg.PublishResult)
	go func() { answers <- publish(t.Context(), p, messages(5000, "e", "k")) }()
	closePublisher(t, p, 15*time.Second)
	counts := count(<-answers)
	if counts[halfmsg.Acked]+counts[halfmsg.Unsent] != 5000 {
		t.Errorf("got %v", counts)
	}
	d.take("q", counts[halfmsg.Acked])

	r := outcome(t, p, message(1, "e", "k"))
	stopped := errors.Is(r.Cause, rabbitmq.ErrStopped) && errors.Is(p.Ready(), rabbitmq.ErrStopped)
	if r.Outcome != halfmsg.Unsent || !stopped {
		t.Errorf("got %v, ready: %v", r, p.Ready())
	}
	closePublisher(t, p, time.Second)
}
