package app_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/app"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/events"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// webhook keeps the events posted to it.
type told struct {
	mu  sync.Mutex
	all []events.Event
}

func (h *told) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var p events.Post
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, p.Events...)
}

// of sums up the events of a kind about a subject.
func (h *told) of(kind events.Kind, subject string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.all {
		if e.Kind == kind && e.Subject == subject {
			n += e.Count
		}
	}
	return n
}

// Operators get an event for each trouble of a coordinator, and for its end.
func TestOperatorsGetEventsOfTrouble(t *testing.T) {
	t.Parallel()
	h := &told{}
	webhook := httptest.NewServer(h)
	defer webhook.Close()
	redis := servers.Redis(t)
	r := start(t, settings(func(c *config.Config) {
		c.Redis.URL = redis.URL()
		c.Events.Webhook = webhook.URL
		c.Events.DeadLetterQueues, c.Events.Queues = []string{"failed"}, []string{"misspelt"}
		c.Send.Backoff = []time.Duration{time.Millisecond}
		c.Confirm.Timeout = 200 * time.Millisecond
		c.Confirm.After = 10 * time.Millisecond
	}), app.Bounds{Sendable: 1, SendableAge: time.Millisecond})
	r.awaitReady(t)
	p := startOrders(t)
	client := r.producers(t)
	send := func(change func(half *msghandlerv1.SendHalfMessageRequest)) {
		t.Helper()
		half := half(p, "1")
		change(half)
		if _, err := client.SendHalfMessage(t.Context(), half); err != nil {
			t.Fatal(err)
		}
	}
	hears := func(kind events.Kind, subject string) {
		t.Helper()
		servers.Eventually(t, time.Minute, string(kind)+" of "+subject+" is told",
			func() bool { return h.of(kind, subject) > 0 })
	}

	r.declare(t, "failed")
	send(func(half *msghandlerv1.SendHalfMessageRequest) { half.Message.RoutingKey = "failed" })
	send(func(half *msghandlerv1.SendHalfMessageRequest) {
		half.Producer, half.Message.Exchange = "lost", "nowhere"
	})
	send(func(half *msghandlerv1.SendHalfMessageRequest) {
		half.Producer, half.CallbackTarget = "away", nobodyAt(t)
	})
	hears(events.Dead, "lost")
	hears(events.BreakerOpen, "away")
	hears(events.Backlog, "dead-letter queue failed")
	servers.Eventually(t, 30*time.Second, "the missing queue is named", func() bool {
		return strings.Contains(r.log.String(), "queue=misspelt")
	})
	r.holds(t, `msghandler_watched_queue_messages{queue="failed"} 1`, `msghandler_events_total{kind="dead"} 1`,
		`msghandler_webhook_posts_total{result="ok"} `)

	redis.Kill()
	hears(events.StoreAway, "")
	redis.Start()
	hears(events.StoreBack, "")
}

// declare makes a queue without a consumer.
func (r *running) declare(t *testing.T, name string) {
	t.Helper()
	conn, err := amqp.Dial(r.amqp)
	must.Succeed(t, err)
	defer conn.Close()
	ch, err := conn.Channel()
	must.Succeed(t, err)
	if _, err := ch.QueueDeclare(name, true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
}
