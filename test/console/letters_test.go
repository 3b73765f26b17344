package console

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/browser"
	"github.com/msghandler/msghandler/test/servers"
)

// graveyard is a queue of dead letters on a real broker, and the queue of their consumer.
type graveyard struct {
	*testing.T
	url string
	ch  *amqp.Channel
}

// newGraveyard has so many letters, of which each third failed for want of stock.
func newGraveyard(t *testing.T, letters int) *graveyard {
	t.Helper()
	g := &graveyard{T: t, url: servers.RabbitMQ(t).URL}
	conn, err := amqp.Dial(g.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if g.ch, err = conn.Channel(); err != nil {
		t.Fatal(err)
	}
	for _, queue := range []string{"payments", "payments.dead"} {
		if _, err := g.ch.QueueDeclare(queue, true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	for i := range letters {
		cause := "connect to the database: connection refused"
		if i%3 == 0 {
			cause = "order 1001: no stock"
		}
		err := g.ch.PublishWithContext(t.Context(), "", "payments.dead", true, false, amqp.Publishing{
			MessageId: fmt.Sprintf("2026-%04d", i+1), AppId: "orders", ContentType: "application/json",
			Body: fmt.Appendf(nil, `{"order":%d,"customer":"Zoë"}`, i+1), DeliveryMode: amqp.Persistent,
			Headers: amqp.Table{
				consumer.HeaderQueue: "payments", consumer.HeaderExchange: "", consumer.HeaderRoutingKey: "payments",
				consumer.HeaderDeadReason: cause, consumer.HeaderFirstCause: cause, consumer.HeaderRetries: int64(5),
				consumer.HeaderFirstFailedAt: time.Now().Add(-3 * time.Hour).Format(time.RFC3339), "tenant": "nordic",
			},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	g.holds("payments.dead", letters)
	return g
}

// holds waits until a queue has so many messages.
func (g *graveyard) holds(queue string, want int) {
	g.Helper()
	servers.Eventually(g, 20*time.Second, fmt.Sprintf("%s has %d messages", queue, want), func() bool {
		q, err := g.ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			g.Fatal(err)
		}
		return q.Messages == want
	})
}

// configured names the queue, and another at a broker that does not answer.
func (g *graveyard) configured(c *config.Config) {
	c.AMQP.URLs = []string{g.url}
	c.DeadLetters = map[string]config.DeadLetters{
		"payments": {Queue: "payments.dead"}, "stock": {Queue: "stock.dead", Broker: "gone"},
	}
	c.Brokers = map[string]config.Broker{"gone": {URL: "amqp://u:hunter2@127.0.0.1:1/"}}
}

func TestLettersAreReplayedAndDiscarded(t *testing.T) {
	g := newGraveyard(t, 120)
	r := start(t, patient, g.configured)
	b := browse(t, r.HTTPAddr())
	b.Open("/letters")
	b.Shows("Dead letters", "payments", "120", "3 h", "stock", "connection refused")
	b.Lacks("hunter2")
	b.Click(`a[href="/letters?queue=payments"]`)
	b.Shows("orders/2026-0001", "orders/2026-0100", "order 1001: no stock", "Next page")
	b.Lacks("orders/2026-0101")
	b.Shows("Groups by consumer, exchange and cause", "80", "connect to the database: connection refused", "40")
	b.Click(`.groups tbody tr:nth-child(2) th a`)
	b.Shows("orders/2026-0001", "orders/2026-0004", "order 1001: no stock")
	b.Lacks("orders/2026-0002")
	b.Open("/letters?queue=payments")
	b.Click("#next")
	b.Shows("orders/2026-0101", "orders/2026-0120", "First page")
	b.Open("/letters?queue=payments&cause=NO+STOCK")
	b.Shows("orders/2026-0004", "orders/2026-0118")
	b.Lacks("orders/2026-0002", "Next page")
	b.Click(`a[href*="2026-0004"]`)
	b.Shows("A consumer of payments gave the message up, after 5 retries", "First cause: order 1001: no stock",
		`"customer": "Zoë"`, "nordic", "3 h ago")

	// A letter from its own page.
	b.Click(`button[value=replay]`)
	b.Shows("Replay 1 dead letter?", "orders/2026-0004")
	g.holds("payments", 0)
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "in stock again"))
	b.Click(".card button")
	b.Shows("1 dead letter replayed", "in stock again")
	g.holds("payments", 1)
	r.wrote("action=replay_dead_letters", "from=127.0.0.1:", "via=console", `reason="in stock again"`, "orders/2026-0004",
		`queue=\"payments\"`, "destinations=")
	b.Do(chromedp.Reload()) // a form that is sent again
	b.Shows("Nothing was changed")

	// All of a cause.
	b.Open("/letters?queue=payments&cause=no+stock")
	b.Click(`a[href^="/letters/change?action=discard"]`)
	b.Shows("Discard 39 dead letters?", "They are removed for good", "whose cause contains “no stock”")
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "cancelled"))
	b.Click(".card button")
	b.Shows("39 dead letters discarded")
	g.holds("payments.dead", 80)
	r.wrote("action=discard_dead_letters", `cause_contains=\"no stock\"`, "reason=cancelled", "orders/2026-0118")

	// A selection.
	b.Open("/letters?queue=payments")
	b.Do(chromedp.Click(chromedp.CSS(`[value="orders/2026-0002"]`)),
		chromedp.Click(chromedp.CSS(`[value="orders/2026-0003"]`)))
	b.Click(`.bar button[value=replay]`)
	b.Shows("Replay 2 dead letters?", "orders/2026-0003")
	browser.Eval[bool](b, `document.querySelector("[name=selection]").value += "&count=99", true`)
	b.Do(chromedp.SendKeys(chromedp.CSS("[name=reason]"), "x"))
	b.Click(".card button")
	b.Shows("Nothing was changed")
	g.holds("payments.dead", 80)
	b.Open("/letter?queue=payments&name=orders/none")
	b.Shows("The queue payments has no dead letter orders/none")
	b.Open("/letters?queue=stock")
	b.Shows("The dead letters of stock cannot be read")
	b.Lacks("hunter2")
	b.Open("/audit?action=discard_dead_letters")
	b.Shows("discard_dead_letters done", "39 dead letters", "cancelled")
}

// Two operators who look at once see all letters each, in the queue's order, and consumers lose none.
func TestLooksAtLettersTakeTurns(t *testing.T) {
	g := newGraveyard(t, 30)
	r := start(t, patient, g.configured)
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			answer, err := http.Get("http://" + r.HTTPAddr() + "/letters?queue=payments")
			if err != nil {
				t.Error(err)
				return
			}
			defer answer.Body.Close()
			page, _ := io.ReadAll(answer.Body)
			last := 0
			for i := range 30 {
				at := strings.Index(string(page), fmt.Sprintf(`value="orders/2026-%04d"`, i+1))
				if at < last {
					t.Errorf("letter %d is missing, or at another place", i+1)
					return
				}
				last = at
			}
		})
	}
	all.Wait()
	g.holds("payments.dead", 30)
}

func TestReadOnlyConsoleChangesNoLetters(t *testing.T) {
	g := newGraveyard(t, 3)
	r := start(t, patient, g.configured, func(c *config.Config) { c.HTTP.ReadOnly, c.HTTP.Bodies = true, false })
	b := browse(t, r.HTTPAddr())
	b.Do(chromedp.EmulateViewport(390, 844))
	for _, path := range []string{"/letters?queue=payments", "/letter?queue=payments&name=orders/2026-0001"} {
		b.Open(path)
		b.Shows("Read-only: nothing can be changed here", "2026-0001")
		if over := b.Overflow(); over > 0 {
			t.Errorf("%s is %d pixels wider than a phone", path, over)
		}
		b.Lacks("Replay", "Discard", "Zoë", "nordic")
	}
	b.Open("/letters/change?action=discard&all=1&queue=payments")
	b.Shows("This console is read-only")
	answer, err := http.PostForm("http://"+r.HTTPAddr()+"/letters/change/do", url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusForbidden {
		t.Errorf("got %d", answer.StatusCode)
	}
	g.holds("payments.dead", 3)
}

// TestScreenshotsOfLetters takes pictures where asked, and demands that no page is wider than its screen.
func TestScreenshotsOfLetters(t *testing.T) {
	if *shots == "" {
		return
	}
	g := newGraveyard(t, 12)
	r := start(t, patient, g.configured)
	b := browse(t, r.HTTPAddr())
	for _, screen := range []struct {
		name          string
		width, height int64
	}{{"desktop", 1280, 900}, {"phone", 390, 844}} {
		for _, theme := range []string{"light", "dark"} {
			b.Do(chromedp.EmulateViewport(screen.width, screen.height))
			b.Theme(theme)
			for name, path := range map[string]string{
				"queues": "/letters", "letters": "/letters?queue=payments",
				"letter":  "/letter?queue=payments&name=orders/2026-0002",
				"replay":  "/letters/change?action=replay&all=1&queue=payments&cause=database",
				"stopped": "/letters?queue=stock",
			} {
				b.Open(path)
				if over := b.Overflow(); over > 0 {
					t.Errorf("%s at %s is %d pixels too wide", name, screen.name, over)
				}
				b.Screenshot(filepath.Join(*shots, fmt.Sprintf("letters-%s-%s-%s.png", name, screen.name, theme)))
			}
		}
	}
}
