package rabbitmqconsumer

import (
	"encoding/json"
	"math"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/consumer"
)

// Any client of the broker may write a letter. The values of its letter can be shown, compared and written to JSON.
func FuzzLetter(f *testing.F) {
	f.Add(int64(1_702_483_200_000), int64(1_702_483_200_000), int64(math.MaxInt64), "9223372036854775807", "")
	f.Add(int64(math.MinInt64), int64(math.MaxInt64), int64(-1), "-1", "9999-12-31T23:59:59-23:59")
	f.Add(int64(1_702_483_200), int64(1_702_483_200), int64(3), "2", "2026-11-24T08:00:00Z")
	f.Fuzz(func(t *testing.T, sent, died, retries int64, attempt, first string) {
		delivery := &amqp.Delivery{
			AppId: "orders", MessageId: "1", Timestamp: time.Unix(sent, 0), Redelivered: true, Headers: amqp.Table{
				"msghandler-attempt": attempt, consumer.HeaderRetries: retries, consumer.HeaderFirstFailedAt: first,
				headerDeliveryCount: retries,
				"x-death":           []any{amqp.Table{"reason": retries, "time": time.Unix(died, 0), "queue": retries}},
			},
		}
		l := newLetter(delivery)
		if _, err := json.Marshal(l); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(l.Since()); err != nil {
			t.Error(err)
		}
		if l.Attempt < 1 || l.Retries < 0 || l.Deliveries < 0 {
			t.Errorf("attempt %d, retries %d, deliveries %d", l.Attempt, l.Retries, l.Deliveries)
		}
		if again := replay(l.Letter, delivery).Headers["msghandler-attempt"].(int64); again < 2 || again > math.MaxInt32 {
			t.Errorf("a replay has the attempt %d: it is not marked as a copy", again)
		}
	})
}
