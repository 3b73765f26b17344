package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/msghandler/msghandler/consumer"
)

// A replayed message looks as if it had never failed: only its attempt tells it from the first copy.
func TestReplayDropsFailureHeaders(t *testing.T) {
	t.Parallel()
	record := &kgo.Record{Headers: []kgo.RecordHeader{{Key: "msghandler-attempt", Value: []byte("1")}}}
	for _, name := range []string{
		consumer.HeaderRetries, consumer.HeaderFirstCause, consumer.HeaderFirstFailedAt, consumer.HeaderDeadReason,
		consumer.HeaderQueue, consumer.HeaderExchange, consumer.HeaderRoutingKey, HeaderRetryAt,
	} {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte("3")})
	}
	record.Headers = append(record.Headers, kgo.RecordHeader{Key: "tenant", Value: []byte("a")})

	got := map[string]string{}
	for _, header := range newLetter(record).replay().Headers {
		got[header.Key] = string(header.Value)
	}
	if len(got) != 2 || got["tenant"] != "a" || got["msghandler-attempt"] != "2" {
		t.Errorf("a replay has the headers %v, want the tenant a and the attempt 2 only", got)
	}
}
