package redis

import (
	"bytes"
	"strconv"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/test/must"
)

// write gives a whole living record, as create.lua stores it.
func write(t *testing.T, created time.Time, m *halfmsg.Message) []byte {
	t.Helper()
	record, err := (&encoder{}).encode(m, m.Digest())
	must.Succeed(t, err)
	return bytes.Replace(record, []byte(unstamped), strconv.AppendInt(nil, created.UnixMilli(), 10), 1)
}

// same compares the fields of two messages that a record holds. A record holds no name: its key does.
func same(a, b halfmsg.Message) string {
	return cmp.Diff(a, b, cmpopts.EquateEmpty(), cmpopts.IgnoreFields(halfmsg.Message{}, "Name"))
}

// An encoder writes the JSON of messages that are alike once. No message may get the line of another.
func TestBatchedMessagesKeepTheirLines(t *testing.T) {
	t.Parallel()
	a := halfmsg.Message{Exchange: "orders", RoutingKey: "created", Body: []byte("body")}
	batch := []halfmsg.Message{a, a, a, a, a, a}
	batch[1].RoutingKey = "paid"
	batch[2].Headers = map[string]string{"tenant": "1"}
	batch[4].Headers = map[string]string{"tenant": "2"}
	batch[5].Trace = "00-1-2-03"
	e := encoder{}
	for i := range batch {
		record, err := e.encode(&batch[i], batch[i].Digest())
		must.Succeed(t, err)
		var read halfmsg.Message
		stored := bytes.Replace(record, []byte(unstamped), []byte("1700000000000"), 1)
		if _, err := decode(stored, halfmsg.Pending, &read); err != nil {
			t.Fatal(err)
		}
		if diff := same(batch[i], read); diff != "" {
			t.Errorf("message %d: %s", i, diff)
		}
	}
}

// FuzzRecord reads arbitrary bytes from Redis. The result is a message or an error, never a panic, and a message
// survives another write and read.
func FuzzRecord(f *testing.F) {
	for _, record := range []string{
		"", "half", "half 1 d {}", "half 1 d {}\n", "half 1 d {}\nbody\nof\x00lines\n", "done 1700000000000 0123",
		"rolled_back 1 d", "half x d {}\n", "half 9223372036854775807 d {}\n", "half -1 d {\"delay_ms\":-1}\n",
		"half 1 d {\"exchange\":\"e\",\"routing_key\":\"k\",\"headers\":{\"a\":\"\\u0000\"}}\nx", "half 1 d null\n",
		"half 1 d {\"exchange\":\"a\",\"EXCHANGE\":\"b\",\"headers\":null}\n", "half 1  {}\n", "half 1 d [1]\n",
		"half 1 d {\"delay_ms\":9223372036854775807}\n", "half 1 d {\"confirm_after_ms\":-9223372036854775808}\n",
		"half 1 d {\"delay_ms\":1e30}\n", "half 1 d {\"exchange\":\"\\ud800\"}\n", "half\n1 d {}\n",
		"pack 1 d 3 {}\n\x03\x08abc", "pack 1 d 4 {}\n\x03\x08abc", "pack 1 d {}\n\x03\x08abc",
		"pack 1 d 8388609 {}\n\x81\x80\x80\x04", "pack 1 d -1 {}\n",
		"pack 1 d 0 {}\n", "pack 1 d 3 {}",
	} {
		f.Add([]byte(record))
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		var first, second halfmsg.Message
		created, err := decode(record, halfmsg.Pending, &first)
		if err != nil {
			return
		}
		if first.Delay < 0 || first.ConfirmAfter < 0 {
			t.Errorf("%q has the delay %s and is confirmed after %s", record, first.Delay, first.ConfirmAfter)
		}
		written := write(t, created.at, &first)
		again, err := decode(written, halfmsg.Pending, &second)
		if err != nil {
			t.Fatalf("%q, written again as %q: %v", record, written, err)
		}
		if diff := same(first, second); diff != "" || !created.at.Equal(again.at) {
			t.Errorf("%q became another record (%s, then %s):\n%s", record, created.at, again.at, diff)
		}
		if created.kind == whole && !bytes.HasSuffix(record, second.Body) {
			t.Errorf("%q has the body %q", record, second.Body)
		}
	})
}

// FuzzMessage writes any content of a request and reads the same content back, byte for byte.
func FuzzMessage(f *testing.F) {
	f.Add("orders", "paid", "text/plain", "a", "b", []byte("body"), uint32(0), uint32(6000))
	f.Add("", "q", "", "", "", []byte(nil), uint32(0), uint32(0))
	f.Add("orders", "paid", "", "", "", bytes.Repeat([]byte("body\n"), 100), uint32(0), uint32(0))
	f.Add("é \u2028<>&\"\\", "#.*", "\u0085", "\U0001f4e6", "a\nb\r\t\x01\x7f\ufffd",
		[]byte("\n\nhalf 1 d {}\n\x00"), uint32(1), uint32(1))
	f.Fuzz(func(
		t *testing.T, exchange, key, contentType, name, value string, body []byte, delay, confirmAfter uint32,
	) {
		for _, text := range []string{exchange, key, contentType, name, value} {
			if !utf8.ValidString(text) {
				return // No text of a request: the codec refuses it.
			}
		}
		m := halfmsg.Message{
			Exchange: exchange, RoutingKey: key, ContentType: contentType, Headers: map[string]string{name: value}, Body: body,
			Delay: time.Duration(delay) * time.Millisecond, CallbackTarget: "dns:///orders:9000",
			ConfirmAfter: time.Duration(confirmAfter) * time.Millisecond,
		}
		at := time.UnixMilli(1_700_000_000_000)
		// Half of the messages are written unpacked. In the other half a repetitive body is packed.
		record := write(t, at, &m)
		var read halfmsg.Message
		created, err := decode(record, halfmsg.Pending, &read)
		if err != nil {
			t.Fatalf("%q: %v", record, err)
		}
		if diff := same(m, read); diff != "" || !created.at.Equal(at) || m.Digest() != read.Digest() {
			t.Errorf("%q is another message (created %s):\n%s", record, created.at, diff)
		}
		if line, _, _ := bytes.Cut(record, []byte{'\n'}); bytes.ContainsRune(line, '\n') || !utf8.Valid(line) {
			t.Errorf("the line %q is none for people", line)
		}
	})
}
