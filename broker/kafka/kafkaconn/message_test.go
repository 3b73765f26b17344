package kafkaconn_test

import (
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/kafka/kafkaconn"
)

func TestCallersHeadersCannotRenameTheMessage(t *testing.T) {
	t.Parallel()
	m := kafkaconn.Message{ID: "1001", Producer: "orders", Topic: "t", Attempt: 2, Headers: map[string]string{
		"msghandler-id": "6", "msghandler-producer": "other", "msghandler-attempt": "1", "tenant": "eu",
		"msghandler-timestamp": "2001-01-01T00:00:00Z",
	}, Time: time.UnixMilli(1_700_000_000_123)}
	record := m.Record()
	if len(record.Headers) != 5 {
		t.Errorf("the record has the headers %v", record.Headers)
	}
	if got := kafkaconn.Read(record); got.ID != "1001" || got.Producer != "orders" || got.Attempt != 2 ||
		got.Headers["tenant"] != "eu" || !got.Time.Equal(m.Time) || !record.Timestamp.IsZero() {
		t.Errorf("the record is read as %+v", got)
	}
}
