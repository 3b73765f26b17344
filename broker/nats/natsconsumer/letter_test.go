package natsconsumer

import (
	"encoding/json"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/consumer"
)

// A replayed message looks as if it had never failed: only its attempt and its id tell it from the first copy.
func TestReplayDropsFailureHeaders(t *testing.T) {
	t.Parallel()
	header := nats.Header{"msghandler-attempt": {"1"}, "tenant": {"a"}, "Nats-Expected-Stream": {"ORDERS"}}
	for _, name := range []string{
		consumer.HeaderRetries, consumer.HeaderFirstCause, consumer.HeaderFirstFailedAt, consumer.HeaderDeadReason,
		consumer.HeaderQueue, consumer.HeaderExchange, consumer.HeaderRoutingKey,
	} {
		header.Set(name, "3")
	}
	got := newLetter("DEAD", &jetstream.RawStreamMsg{Header: header}).replay().Header
	if len(got) != 3 || got.Get("tenant") != "a" || got.Get("msghandler-attempt") != "2" ||
		got.Get(jetstream.MsgIDHeader) == "" {
		t.Errorf("a replay has the headers %v, want the tenant a, the attempt 2 and a %s only", got, jetstream.MsgIDHeader)
	}
}

// Any client of the server may write a letter. The values of its letter can be shown, compared and written to JSON.
func FuzzLetter(f *testing.F) {
	f.Add(int64(math.MaxInt64), "9223372036854775807", "9223372036854775807", "9999-12-31T23:59:59-23:59")
	f.Add(int64(1_702_483_200_000), "-1", "-1", "")
	f.Add(int64(1_702_483_200), "2", "3", "2026-11-24T08:00:00Z")
	f.Fuzz(func(t *testing.T, stored int64, attempt, retries, at string) {
		header := nats.Header{}
		for name, value := range map[string]string{
			"msghandler-attempt": attempt, consumer.HeaderRetries: retries, "msghandler-timestamp": at,
			consumer.HeaderFirstFailedAt: at,
		} {
			header.Set(name, value)
		}
		l := newLetter("DEAD", &jetstream.RawStreamMsg{Header: header, Time: time.Unix(stored, 0), Subject: at})
		if _, err := json.Marshal([]any{l.Letter, l.Since()}); err != nil {
			t.Error(err)
		}
		if l.Attempt < 1 || l.Retries < 0 {
			t.Errorf("attempt %d, retries %d", l.Attempt, l.Retries)
		}
		if n, err := strconv.Atoi(l.replay().Header.Get("msghandler-attempt")); err != nil || n < 2 {
			t.Errorf("a replay has the attempt %d: it is not marked as a copy", n)
		}
	})
}
