package console

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	amqp "github.com/rabbitmq/amqp091-go"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/msghandler/msghandler/internal/config"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/browser"
	"github.com/msghandler/msghandler/test/servers"
)

// The first page of an operator on a day on which a producer is refused and 1,017 dead letters wait.
func TestOverviewShowsFindings(t *testing.T) {
	broker := servers.RabbitMQ(t).URL
	deadLetters(t, broker, 1017)
	c := start(t, func(c *config.Config) {
		c.AMQP.URLs, c.Events.DeadLetterQueues = []string{broker}, []string{"payments.dead"}
	})
	request := &msghandlerv1.SendHalfMessageRequest{
		Producer: "stock", CallbackTarget: "stock.svc:9000", Message: &msghandlerv1.Message{Id: "1", RoutingKey: "paid"},
	}
	if _, err := c.sender.SendHalfMessage(t.Context(), request); status.Code(err) != codes.PermissionDenied {
		t.Fatalf("the message is not refused: %v", err)
	}
	servers.Eventually(t, time.Minute, "both are found", func() bool {
		stats, err := c.admin.GetStats(context.Background(), &adminv1.GetStatsRequest{})
		return err == nil && len(stats.GetFindings()) == 2
	})
	b := browse(t, c.HTTPAddr())
	servers.Eventually(t, time.Minute, "the charts mark the start", func() bool {
		b.Open("/")
		return strings.Contains(b.Text(), "Marks: 1 start or end of a coordinator (S)")
	})
	b.Shows("Something is wrong", "refused calls of producer stock: 1 since", "with CALLBACK_FORBIDDEN: ",
		"dead letters in queue payments.dead: 1017",
		"Do:", "allow its target in callbacks.allow", "msghandler dlq list --queue payments.dead")
	b.Lacks("All is well")
	for tone, want := range map[string]int{"bad": 1, "warn": 1} {
		pages := `[...document.querySelectorAll(".verdict li.` + tone + ` .do a")].map((a) => a.hash)`
		name := map[string]string{"bad": "#producer-refused", "warn": "#queue-dead-letters"}[tone]
		if found := browser.Eval[[]string](b, pages); len(found) != want || found[0] != name {
			t.Errorf("the %s lines lead to %v, want %s", tone, found, name)
		}
	}
	b.Do(chromedp.Click(chromedp.CSS(".verdict li.bad summary")))
	b.Shows("a business that waits for its half message does not run")
	for name, width := range map[string]int64{"desktop": 1280, "phone": 390} {
		b.Do(chromedp.EmulateViewport(width, 900))
		b.Open("/")
		fits(b, "findings-"+name)
	}
}

// deadLetters puts messages into a queue without consumers.
func deadLetters(t *testing.T, broker string, n int) {
	t.Helper()
	conn, err := amqp.Dial(broker)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("payments.dead", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for range n {
		if err := ch.PublishWithContext(t.Context(), "", "payments.dead", false, false, amqp.Publishing{}); err != nil {
			t.Fatal(err)
		}
	}
}
