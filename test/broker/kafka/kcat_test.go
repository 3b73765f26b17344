package kafka_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// A foreign client, kcat on librdkafka, reads what the publisher writes: body, key and headers. The time of a record is
// that of its publishing.
func TestForeignClientReadsRecords(t *testing.T) {
	t.Parallel()
	k := plain(t)
	k.Topic("orders", nil)
	p := publisher(t, k.URL("", ""), 10*time.Second)
	batch := messages(200, "orders", "order-7")
	batch[0].ContentType, batch[0].Trace = "application/json", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	batch[0].Headers = map[string]string{"tenant": "eu"}
	batch[0].Attempt = 2
	batch[1].DueAt = time.Now().AddDate(-1, 0, 0) // retention must not delete a late message at its birth
	begun := time.Now()
	expect(t, publishAll(t.Context(), p, batch), publish.Acked)

	lines := strings.Split(strings.TrimSpace(k.Kcat("", "-C", "-t", "orders", "-e", "-q", "-J")), "\n")
	if len(lines) != len(batch) {
		t.Fatalf("kcat read %d records, want %d", len(lines), len(batch))
	}
	for n, line := range lines {
		var r struct {
			Key     string
			Payload string
			Ts      int64
			Headers []string
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r.Key != "order-7" || r.Ts < begun.UnixMilli() || r.Payload != string(batch[n].Body) {
			t.Errorf("record %d is %s", n, line)
		}
		headers := map[string]string{}
		for pair := range slices.Chunk(r.Headers, 2) {
			headers[pair[0]] = pair[1]
		}
		if headers["msghandler-id"] != batch[n].Name.ID || headers["msghandler-producer"] != "orders" ||
			headers["msghandler-timestamp"] != batch[n].DueAt.UTC().Format(time.RFC3339Nano) {
			t.Errorf("record %d has the headers %v", n, headers)
		}
		if n > 0 {
			continue
		}
		for name, want := range map[string]string{
			"msghandler-attempt": "2", "content-type": "application/json", "tenant": "eu", "traceparent": batch[0].Trace,
		} {
			if headers[name] != want {
				t.Errorf("header %s is %q, want %q", name, headers[name], want)
			}
		}
	}
}
