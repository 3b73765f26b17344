package kafkaconsumer

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

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

// Any client of the cluster may write a letter. The values of its letter can be shown, compared and written to JSON.
func FuzzLetter(f *testing.F) {
	f.Add(int64(1_702_483_200_000_000), "9223372036854775807", "9223372036854775807", "9999-12-31T23:59:59-23:59", "1/x/2")
	f.Add(int64(math.MaxInt64), "-1", "-1", "", "")
	f.Add(int64(math.MinInt64), "2", "3", "2026-11-24T08:00:00Z", "1/9223372036854775808/1")
	f.Fuzz(func(t *testing.T, written int64, attempt, retries, at, of string) {
		record := &kgo.Record{Timestamp: time.UnixMilli(written)}
		for name, value := range map[string]string{
			"msghandler-attempt": attempt, consumer.HeaderRetries: retries, "msghandler-timestamp": at,
			consumer.HeaderFirstFailedAt: at, HeaderRetryAt: attempt, HeaderSettled: of,
		} {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
		}
		l := newLetter(record)
		if _, err := json.Marshal(l.Letter); err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal([]any{l.Since(), newMessage(record, true)}); err != nil {
			t.Error(err)
		}
		if l.Attempt < 1 || l.Retries < 0 {
			t.Errorf("attempt %d, retries %d", l.Attempt, l.Retries)
		}
		again := l.replay().Headers
		if n, err := strconv.Atoi(string(again[len(again)-1].Value)); err != nil || n < 2 {
			t.Errorf("a replay has the attempt %d: it is not marked as a copy", n)
		}
		if _, offset, ok := settled(record); !ok || offset < -1 {
			t.Errorf("the settlement %q is of the offset %d", of, offset)
		}
		dueAt(record)
	})
}
