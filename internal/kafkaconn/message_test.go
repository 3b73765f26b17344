package kafkaconn_test

import (
	"testing"

	"github.com/msghandler/msghandler/internal/kafkaconn"
)

func TestCallersHeadersCannotRenameTheMessage(t *testing.T) {
	t.Parallel()
	m := kafkaconn.Message{ID: "1001", Producer: "orders", Topic: "t", Attempt: 2, Headers: map[string]string{
		"msghandler-id": "6", "msghandler-producer": "other", "msghandler-attempt": "1", "tenant": "eu",
	}}
	record := m.Record()
	if len(record.Headers) != 4 {
		t.Errorf("the record has the headers %v", record.Headers)
	}
	if got := kafkaconn.Read(record); got.ID != "1001" || got.Producer != "orders" || got.Attempt != 2 ||
		got.Headers["tenant"] != "eu" {
		t.Errorf("the record is read as %+v", got)
	}
}
