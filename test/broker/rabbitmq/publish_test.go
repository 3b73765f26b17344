package rabbitmq_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMessageArrivesAsSent(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	p := publisher(t, rabbitmq.Config{URL: url})

	sent := message(7, "e", "k")
	sent.ContentType = "application/json"
	sent.Headers = map[string]string{"traceparent": "00-1-2-03", "msghandler-attempt": "forged"}
	sent.Attempt, sent.Trace = 3, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" // the header wins
	expect(t, publishAll(t.Context(), p, []publish.Message{sent}), publish.Acked)

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

// Returned messages are acknowledged as well. Ten thousand from many callers, half of them unroutable, many of them
// with the same id in flight several times.
func TestReturnsMatchTheirConfirmations(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "routed", nil)
	p := publisher(t, rabbitmq.Config{URL: url, ConfirmTimeout: time.Minute})

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
			for i, r := range publishAll(t.Context(), p, batch) {
				want := publish.Acked
				if batch[i].RoutingKey == "nowhere" {
					want = publish.Refused
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
	p := publisher(t, rabbitmq.Config{URL: url})

	servers.Eventually(t, 10*time.Second, "the queue is full", func() bool {
		r := outcome(t, p, message(0, "e", "full"))
		return r.Outcome == publish.Refused && strings.Contains(r.Cause.Error(), "nack")
	})
	batch := append(messages(50, "e", "full"), messages(50, "e", "roomy")...)
	results := publishAll(t.Context(), p, batch)
	expect(t, results[:50], publish.Refused)
	expect(t, results[50:], publish.Acked)
}

func TestMissingExchangeStopsOnlyItsOwn(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("good")
	d.queue("q", "good", "k", nil)
	p := publisher(t, rabbitmq.Config{URL: url})

	batch := messages(600, "good", "k")
	for i := range batch {
		if i%3 == 0 {
			batch[i].Exchange = fmt.Sprintf("missing %d", i%5)
		}
	}
	for i, r := range publishAll(t.Context(), p, batch) {
		want := publish.Acked
		if i%3 == 0 {
			want = publish.Refused
		}
		if r.Outcome != want {
			t.Fatalf("message %d to %s is %v: %v", i, batch[i].Exchange, r.Outcome, r.Cause)
		}
	}
	d.take("q", 400)

	d.exchange("missing 0")
	d.queue("late", "missing 0", "k", nil)
	servers.Eventually(t, 5*time.Second, "the exchange declared later is used", func() bool {
		return outcome(t, p, message(1, "missing 0", "k")).Outcome == publish.Acked
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
	p := publisher(t, rabbitmq.Config{URL: url})
	mixed := append(messages(100, "good", "k"), messages(100, "doomed", "k")...)
	for i := range mixed {
		mixed[i].Name.ID = fmt.Sprint(i)
	}
	expect(t, publishAll(t.Context(), p, mixed), publish.Acked)

	d.must(d.channel.ExchangeDelete("doomed", false, false))
	settled := false
	for round := 0; !settled && round < 5; round++ {
		began := time.Now()
		results := publishAll(t.Context(), p, mixed)
		settled = count(results[:100])[publish.Acked] == 100 && count(results[100:])[publish.Refused] == 100
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("round %d took %v", round, took)
		}
		if n := count(results)[publish.Acked]; round > 0 && n != 100 {
			t.Errorf("round %d: %v", round, count(results))
		}
	}
	if !settled {
		t.Error("the good ones are not acknowledged, or the others not refused")
	}
}

// The broker checks a routing key's permission only for some messages to an exchange. An exchange whose first message
// passed must not vouch for them.
func TestPoisonMessageIsIsolated(t *testing.T) {
	t.Parallel()
	vhost := servers.RabbitMQ(t)
	d := declare(t, vhost.URL)
	d.must(d.channel.ExchangeDeclare("e", amqp.ExchangeTopic, true, false, false, false, nil))
	d.queue("q", "e", "#", nil)
	user := limitedUser(t, vhost, ".*")
	user.allowTopics("e", "good.*")
	p := publisher(t, rabbitmq.Config{URL: user.url})

	expect(t, publishAll(t.Context(), p, messages(1, "e", "good.first")), publish.Acked)
	batch := messages(100, "e", "good.key")
	batch[50].RoutingKey = "bad.key"
	var results []publish.Result
	for range 3 {
		results = publishAll(t.Context(), p, batch)
		if results[50].Outcome == publish.Refused {
			break
		}
	}
	if counts := count(results); results[50].Outcome != publish.Refused || counts[publish.Acked] != 99 {
		t.Errorf("got %v; the poison message: %v", counts, results[50])
	}
	expect(t, publishAll(t.Context(), p, messages(100, "e", "good.key")), publish.Acked)
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
	p := publisher(t, rabbitmq.Config{URL: user.url})
	both := append(messages(20, "good", "k"), messages(20, "guarded", "k")...)
	for i := range both {
		both[i].Name.ID = fmt.Sprint(i)
	}
	expect(t, publishAll(t.Context(), p, both), publish.Acked)

	user.allow("^good$")
	vhost.CloseConnections(2) // A channel remembers its permissions; a new channel does not.
	servers.Eventually(t, 30*time.Second, "only the guarded ones are refused", func() bool {
		results := publishAll(t.Context(), p, both)
		return count(results[:20])[publish.Acked] == 20 && count(results[20:])[publish.Refused] == 20
	})
	user.allow(".*")
	servers.Eventually(t, 10*time.Second, "all are taken again", func() bool {
		return count(publishAll(t.Context(), p, both))[publish.Acked] == len(both)
	})
}

func TestMessageUnfitForAMQPIsRefused(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	d.exchange("e")
	d.queue("q", "e", "k", nil)
	p := publisher(t, rabbitmq.Config{URL: url})
	long := strings.Repeat("x", 256)

	batch := messages(7, "e", "k")
	batch[0].Exchange = long
	batch[1].RoutingKey = long
	batch[2].ContentType = long
	batch[3].Name.ID = long
	batch[4].Name.Producer = long
	batch[5].Headers = map[string]string{long: "v"}
	batch[6].Headers = map[string]string{"h": strings.Repeat("v", 200<<10)}
	results := publishAll(t.Context(), p, append(batch, messages(10, "e", "k")...))
	expect(t, results[:7], publish.Refused)
	expect(t, results[7:], publish.Acked)
}

func TestDefaultExchangeTakesLargeBodies(t *testing.T) {
	t.Parallel()
	url := servers.RabbitMQ(t).URL
	d := declare(t, url)
	_, err := d.channel.QueueDeclare("q", true, false, false, false, nil)
	d.must(err)
	p := publisher(t, rabbitmq.Config{URL: url})
	batch := messages(2, "", "q")
	batch[0].Body = nil
	batch[1].Body = bytes.Repeat([]byte("large "), 1<<20/6)
	expect(t, publishAll(t.Context(), p, batch), publish.Acked)
	bodies := 0
	for _, delivery := range d.take("q", 2) {
		bodies += len(delivery.Body)
	}
	if bodies != len(batch[1].Body) {
		t.Errorf("%d bytes arrived, want %d", bodies, len(batch[1].Body))
	}
	if r := outcome(t, p, message(1, "", "no such queue")); r.Outcome != publish.Refused {
		t.Errorf("got %v", r)
	}
}
