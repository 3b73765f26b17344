// Package logs checks the log lines of the consumers on all brokers.
package logs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/servers"
)

// Lines is a log for concurrent reading and writing.
type Lines struct{ servers.Log }

// Logger returns a logger that writes lines of every level as JSON.
func (l *Lines) Logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// About returns the lines with a message's id. All lines must be JSON.
func (l *Lines) About(t *testing.T, id string) (found []map[string]any) {
	t.Helper()
	for raw := range bytes.Lines([]byte(l.String())) {
		var line map[string]any
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if name, _ := line["message_id"].(string); strings.HasSuffix(name, "/"+id) {
			found = append(found, line)
		}
	}
	return found
}

// Begin starts a consumer with a language, a logger and a handler. It returns a function that publishes a message with
// an id to the consumer.
type Begin func(t *testing.T, language string, own *slog.Logger, handler consumer.HandlerFunc) (publish func(id string))

// FixedTexts checks that failures and duplicates have fixed texts in the language of a consumer, in the lines of the
// consumer and in the lines of the middleware Logging.
func FixedTexts(t *testing.T, begin Begin) {
	type texts struct{ consumer, middleware string }
	for language, want := range map[string]map[string]texts{
		"": {
			"failed":      {"consuming failed; message will be redelivered", "consuming failed; message not handled"},
			"rejected":    {"consuming failed; message rejected", "consuming failed; message not handled"},
			"unsupported": {"unsupported event type; message rejected", "unsupported event type; message not handled"},
			"duplicate":   {"event already handled, duplicate ignored", "event already handled, duplicate ignored"},
		},
		"zh": {
			"failed":      {"消息消费失败", "消息消费失败"},
			"rejected":    {"消息消费失败", "消息消费失败"},
			"unsupported": {"事件类型不支持", "事件类型不支持"},
			"duplicate":   {"事件已处理，忽略重复消息", "事件已处理，忽略重复消息"},
		},
	} {
		t.Run("language "+language, func(t *testing.T) {
			t.Parallel()
			own, around := &Lines{}, &Lines{}
			handler := consumer.Chain(consumer.HandlerFunc(outcome), consumer.Logging(around.Logger()))
			publish := begin(t, language, own.Logger(), handler.Handle)
			for id, text := range want {
				publish(id)
				servers.Eventually(t, time.Minute, id+" is logged", func() bool { return len(own.About(t, id)) > 0 })
				if got := own.About(t, id)[0]["msg"]; got != text.consumer {
					t.Errorf("%s: the consumer logs %q, want %q", id, got, text.consumer)
				}
				if got := around.About(t, id)[0]["msg"]; got != text.middleware {
					t.Errorf("%s: Logging logs %q, want %q", id, got, text.middleware)
				}
			}
		})
	}
}

// outcome ends the handling of a message in the way that its id names.
func outcome(_ context.Context, m *consumer.Message) error {
	switch m.ID {
	case "unsupported":
		return consumer.Reject(fmt.Errorf("%w: ORDER_EATEN", consumer.ErrUnsupportedType))
	case "duplicate":
		return consumer.ErrDuplicate
	case "rejected":
		return consumer.Reject(errors.New("nonsense"))
	}
	return errors.New("no database")
}
