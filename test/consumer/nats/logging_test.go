package nats_test

import (
	"log/slog"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/logs"
)

func TestNATSConsumersTextsAreTranslated(t *testing.T) {
	t.Parallel()
	logs.FixedTexts(t, func(t *testing.T, language string, own *slog.Logger, handler consumer.HandlerFunc) func(string) {
		w := newWorld(t)
		config := w.config()
		config.Language, config.Logger = language, own
		w.run(config, handler)
		return func(id string) { w.publish(id) }
	})
}
