package consumer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
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
