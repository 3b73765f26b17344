package nats

import (
	"testing"

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
