package kafka_test

import (
	"log/slog"
	"testing"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/test/consumer/logs"
)

func TestKafkaConsumersTextsAreTranslated(t *testing.T) {
	t.Parallel()
	logs.FixedTexts(t, func(t *testing.T, language string, own *slog.Logger, handler consumer.HandlerFunc) func(string) {
		k := cluster(t)
		config := quick(t, k)
		config.Language, config.Logger = language, own
		start(t, config, handler)
		return func(id string) { produce(t, k, withID(id)) }
	})
}
