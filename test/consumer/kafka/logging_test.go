package kafka_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

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

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// about returns the texts of the lines with a message's id.
func (l *lines) about(t *testing.T, id string) (texts []string) {
	t.Helper()
	for raw := range bytes.Lines([]byte(l.String())) {
		var line struct{ Msg, ID string }
		if err := json.Unmarshal(raw, &line); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if line.ID == id {
			texts = append(texts, line.Msg)
		}
	}
	return texts
}

func (l *lines) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// Failures and duplicates have fixed texts in the consumer's language, in its own lines and in those of Logging.
func TestFixedTextsAreInTheKafkaConsumersLanguage(t *testing.T) {
	t.Parallel()
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
			k, own, around := cluster(t), &lines{}, &lines{}
			config := quick(t, k)
			config.Language, config.Logger = language, own.logger()
			handler := consumer.Chain(consumer.HandlerFunc(func(_ context.Context, m *consumer.Message) error {
				switch m.ID {
				case "unsupported":
					return consumer.Reject(fmt.Errorf("%w: ORDER_EATEN", consumer.ErrUnsupportedType))
				case "duplicate":
					return consumer.ErrDuplicate
				case "rejected":
					return consumer.Reject(errors.New("nonsense"))
				}
				return errors.New("no database")
			}), consumer.Logging(around.logger()))
			start(t, config, handler.Handle)
			for id, text := range want {
				record := &kgo.Record{
					Topic: "orders", Headers: []kgo.RecordHeader{{Key: "msghandler-id", Value: []byte(id)}},
				}
				if err := k.Admin.ProduceSync(t.Context(), record).FirstErr(); err != nil {
					t.Fatal(err)
				}
				servers.Eventually(t, time.Minute, id+" is logged", func() bool { return len(own.about(t, id)) > 0 })
				if got := own.about(t, id)[0]; got != text.consumer {
					t.Errorf("%s: the consumer logs %q, want %q", id, got, text.consumer)
				}
				if got := around.about(t, id)[0]; got != text.middleware {
					t.Errorf("%s: Logging logs %q, want %q", id, got, text.middleware)
				}
			}
		})
	}
}
