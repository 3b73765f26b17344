package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	rabbit "github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqconsumer"
	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/logs"
	"github.com/msghandler/msghandler/test/servers"
)

func TestLogLinesNameMessageAndConsumer(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &logs.Lines{}
	config := b.config()
	config.Name, config.Logger = "billing", slog.New(slog.NewJSONHandler(log, nil))
	logging := consumer.Logging(slog.New(slog.NewJSONHandler(log, nil)))
	handler := consumer.Chain(consumer.HandlerFunc(func(context.Context, *consumer.Message) error {
		return consumer.Reject(errors.New("nonsense"))
	}), logging)
	b.start(config, handler.Handle)
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	err := b.ch.PublishWithContext(t.Context(), "orders", "order.paid", true, false, amqp.Publishing{
		MessageId: "1001", AppId: "orders",
		Headers: amqp.Table{"traceparent": "00-" + trace + "-00f067aa0ba902b7-01"},
	})
	if err != nil {
		t.Fatal(err)
	}
	// A line of the middleware, and a line of the consumer itself.
	servers.Eventually(t, patience, "two lines", func() bool { return len(log.About(t, "1001")) == 2 })
	for _, line := range log.About(t, "1001") {
		for key, want := range map[string]string{
			"consumer": "billing", "queue": "payments", "trace_id": trace, "message_id": "orders/1001",
		} {
			if line[key] != want {
				t.Errorf("%s is %v in %v", key, line[key], line)
			}
		}
	}
}

func TestMiddlewareLogsInTheConsumersLanguage(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &logs.Lines{}
	config := b.config()
	config.Language, config.Logger = "zh", slog.New(slog.DiscardHandler)
	handler := consumer.Chain(consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
		if m.ID == "duplicate" {
			return consumer.ErrDuplicate
		}
		return consumer.Reject(errors.New("nonsense"))
	}), consumer.Logging(log.Logger()))
	b.start(config, handler.Handle)
	for id, text := range map[string]string{"failed": "消息消费失败", "duplicate": "事件已处理，忽略重复消息"} {
		b.publishAs(id, nil)
		servers.Eventually(t, patience, id+" is logged", func() bool { return len(log.About(t, id)) == 1 })
		if got := log.About(t, id)[0]["msg"]; got != text {
			t.Errorf("%s: the line is %q, want %q", id, got, text)
		}
	}
}

func TestUnknownLanguageIsRefused(t *testing.T) {
	t.Parallel()
	config := rabbit.Config{URL: "amqp://localhost/", Queue: "payments", Language: "de"}
	if _, err := rabbit.New(config); err == nil || !strings.Contains(err.Error(), `Language: "de"`) {
		t.Errorf("got %v", err)
	}
}
