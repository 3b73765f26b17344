package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// lines is a log for concurrent reading and writing.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// about returns the lines with a message's id.
func (l *lines) about(t *testing.T, id string) (found []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, raw := range bytes.Split(bytes.TrimSpace(l.text.Bytes()), []byte("\n")) {
		if len(raw) == 0 {
			continue // nothing is logged yet
		}
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if line["id"] == id {
			found = append(found, line)
		}
	}
	return found
}

func TestLogLinesNameMessageAndConsumer(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &lines{}
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
	servers.Eventually(t, patience, "two lines", func() bool { return len(log.about(t, "1001")) == 2 })
	for _, line := range log.about(t, "1001") {
		for key, want := range map[string]string{
			"consumer": "billing", "queue": "payments", "trace_id": trace, "producer": "orders",
		} {
			if line[key] != want {
				t.Errorf("%s is %v in %v", key, line[key], line)
			}
		}
	}
}

// A duplicate, an unknown event type and a failure have fixed texts, in the consumer's language.
func TestFixedTextsAreInTheConsumersLanguage(t *testing.T) {
	t.Parallel()
	for language, want := range map[string]struct{ failed, unsupported, duplicate string }{
		"": {
			"consuming failed; message rejected", "unsupported event type; message rejected",
			"event already handled, duplicate ignored",
		},
		"zh": {"消息消费失败", "事件类型不支持", "事件已处理，忽略重复消息"},
	} {
		t.Run("language "+language, func(t *testing.T) {
			t.Parallel()
			b, log := newBench(t), &lines{}
			config := b.config()
			config.Language = language
			config.Logger = slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			b.start(config, func(_ context.Context, m *consumer.Message) error {
				switch m.ID {
				case "unsupported":
					return consumer.Reject(fmt.Errorf("%w: ORDER_EATEN", consumer.ErrUnsupportedType))
				case "duplicate":
					return consumer.ErrDuplicate
				}
				return consumer.Reject(errors.New("nonsense"))
			})
			for id, text := range map[string]string{
				"failed": want.failed, "unsupported": want.unsupported, "duplicate": want.duplicate,
			} {
				b.publishAs(id, nil)
				servers.Eventually(t, patience, id+" is logged", func() bool { return len(log.about(t, id)) == 1 })
				if got := log.about(t, id)[0]["msg"]; got != text {
					t.Errorf("%s: the line is %q, want %q", id, got, text)
				}
			}
		})
	}
}

func TestMiddlewareLogsInTheConsumersLanguage(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &lines{}
	config := b.config()
	config.Language, config.Logger = "zh", slog.New(slog.DiscardHandler)
	handler := consumer.Chain(consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
		if m.ID == "duplicate" {
			return consumer.ErrDuplicate
		}
		return consumer.Reject(errors.New("nonsense"))
	}), consumer.Logging(slog.New(slog.NewJSONHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	b.start(config, handler.Handle)
	for id, text := range map[string]string{"failed": "消息消费失败", "duplicate": "事件已处理，忽略重复消息"} {
		b.publishAs(id, nil)
		servers.Eventually(t, patience, id+" is logged", func() bool { return len(log.about(t, id)) == 1 })
		if got := log.about(t, id)[0]["msg"]; got != text {
			t.Errorf("%s: the line is %q, want %q", id, got, text)
		}
	}
}

func TestUnknownLanguageIsRefused(t *testing.T) {
	t.Parallel()
	config := consumer.Config{URL: "amqp://localhost/", Queue: "payments", Language: "de"}
	if _, err := consumer.New(config); err == nil || !strings.Contains(err.Error(), `Language: "de"`) {
		t.Errorf("got %v", err)
	}
}
