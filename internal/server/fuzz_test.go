package server

import (
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/guard"
	msghandlerv1 "github.com/msghandler/msghandler/proto/msghandler/v1"
	"github.com/msghandler/msghandler/test/must"
	"github.com/msghandler/msghandler/test/servers"
)

// TestRabbitMQTakesAcceptedMessages brings the nasty messages through the real broker, with exchanges of every kind.
func TestRabbitMQTakesAcceptedMessages(t *testing.T) {
	t.Parallel()
	c := newCarrier(t, servers.RabbitMQ(t).URL)
	all := nasty()
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			m, refused := accept(all[name])
			if refused != nil {
				t.Fatalf("the request is not even accepted: %v", refused)
			}
			for i, kind := range kinds {
				c.carry(t, &m, kind, 1+i*1_000_000)
				if m.Exchange == "" {
					break
				}
			}
		})
	}
}

// leastCarried is how many kept requests must be accepted and carried. Files named accepted-... are at the edges of
// validation, files named refused-... just beyond.
const leastCarried = 30

// TestRabbitMQTakesKeptFuzzMessages brings the accepted ones among the kept requests through the real broker.
func TestRabbitMQTakesKeptFuzzMessages(t *testing.T) {
	t.Parallel()
	c, carried := newCarrier(t, servers.RabbitMQ(t).URL), 0
	files, err := filepath.Glob("testdata/fuzz/FuzzRequest/*")
	must.Succeed(t, err)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			m, accepted := acceptBytes(t, kept(t, file))
			if !accepted && strings.HasPrefix(filepath.Base(file), "accepted-") {
				t.Error("the request is refused")
			}
			if !accepted || !declarable(&m) {
				return
			}
			carried++
			for i, kind := range kinds {
				c.carry(t, &m, kind, 1+i)
			}
		})
	}
	if carried < leastCarried {
		t.Errorf("%d of %d kept requests came to the broker, fewer than %d", carried, len(files), leastCarried)
	}
}

// kept reads a file of the fuzzer with a single value of bytes.
func kept(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	must.Succeed(t, err)
	_, literal, _ := strings.Cut(string(text), "\n[]byte(")
	data, err := strconv.Unquote(strings.TrimSuffix(strings.TrimSpace(literal), ")"))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return []byte(data)
}

// embeddedCarrier carries through a broker of this process.
func embeddedCarrier(f *testing.F) *carrier {
	f.Helper()
	broker := amqpbroker.New(amqpbroker.Config{Logger: slog.New(slog.DiscardHandler)})
	f.Cleanup(func() { _ = broker.Close() })
	address, err := broker.Listen("127.0.0.1:0")
	must.Succeed(f, err)
	return newCarrier(f, "amqp://guest:guest@"+address+"/")
}

// checkRefusal checks that a refusal names its fields, in valid UTF-8.
func checkRefusal(t *testing.T, refused *invalidError) {
	t.Helper()
	for _, v := range refused.violations {
		if v.GetDescription() == "" ||
			v.GetField() == "" && !strings.HasPrefix(v.GetDescription(), "the request cannot be read") {
			t.Errorf("no field or no reason: %v", v)
		}
	}
	if len(refused.violations) == 0 || !utf8.ValidString(refused.Error()) || len(refused.status().Details()) != 1 {
		t.Errorf("%d violations, %d details: %q", len(refused.violations), len(refused.status().Details()), refused)
	}
}

// declarable: RabbitMQ reserves these names of queues, so this test cannot declare the queue.
func declarable(m *halfmsg.Message) bool {
	return m.Exchange != "" || !strings.HasPrefix(m.RoutingKey, "amq.")
}

// FuzzRequest reads the bytes of a SendHalfMessage. The request is refused with its fields, or the broker takes the
// message and closes nothing.
func FuzzRequest(f *testing.F) {
	for _, r := range nasty() {
		if len(r.GetMessage().GetBody()) > 4096 {
			continue // The fuzzer would spend its time on changing the body.
		}
		data, err := proto.Marshal(r)
		must.Succeed(f, err)
		f.Add(data)
	}
	f.Add([]byte{0x0a, 1, 0xff})
	f.Add([]byte{0x1a, 5, 0x2a, 3, 0x0a, 1, 0xff})
	c := embeddedCarrier(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		if m, accepted := acceptBytes(t, data); accepted && declarable(&m) {
			c.carry(t, &m, kinds[len(data)%len(kinds)], 1)
		}
	})
}

// acceptBytes decodes the bytes of a request and checks the request.
func acceptBytes(t *testing.T, data []byte) (m halfmsg.Message, accepted bool) {
	t.Helper()
	var r msghandlerv1.SendHalfMessageRequest
	var refused *invalidError
	if err := guard.Decode(data, &r, judge.config.Limits.ofRequests()); err != nil {
		refused = invalid(err.Field, err.Reason)
	} else {
		m, refused = accept(&r)
	}
	if refused != nil {
		checkRefusal(t, refused)
	}
	return m, refused == nil
}

// FuzzMessage is as FuzzRequest, past the encoding: texts, numbers and sizes are changed one by one. It also finds out
// that the copies are as many as a message may come to have.
func FuzzMessage(f *testing.F) {
	f.Add("orders", "1", "shop", "paid", "text/plain", "a", "b", uint8(1), uint16(0), []byte("body"), uint32(1))
	f.Add("o", "1", "", "q", "", "CC", "x", uint8(0), uint16(0), []byte(nil), uint32(1<<31))
	f.Add("o", "1:~", "amq.x", "q", "\x00", "x-a", "\x00", uint8(33), uint16(1<<14), []byte{0xCE}, uint32(2))
	f.Add("{o}", ".1", strings.Repeat("e", 256), strings.Repeat("é", 128), "\n", "\x7f", "v", uint8(31), uint16(500),
		[]byte{0}, uint32(2))
	for _, r := range nasty() {
		if m := r.GetMessage(); len(m.GetHeaders()) == 1 && len(m.GetBody()) < 4096 {
			for key, value := range m.GetHeaders() {
				f.Add(r.GetProducer(), m.GetId(), m.GetExchange(), m.GetRoutingKey(), m.GetContentType(), key, value,
					uint8(1), uint16(0), m.GetBody(), uint32(1))
			}
		}
	}
	c := embeddedCarrier(f)
	f.Fuzz(func(
		t *testing.T, producer, id, exchange, key, contentType, name, value string, headers uint8, longer uint16, body []byte,
		attempt uint32,
	) {
		r := &msghandlerv1.SendHalfMessageRequest{
			Producer:       producer,
			CallbackTarget: "orders:9000",
			Message: &msghandlerv1.Message{
				Id: id, Exchange: exchange, RoutingKey: key, ContentType: contentType, Body: body, Headers: map[string]string{},
			},
		}
		for i := range headers {
			n := name
			if i > 0 {
				n += strconv.Itoa(int(i))
			}
			r.Message.Headers[n] = value + strings.Repeat("v", int(longer))
		}
		if _, err := proto.Marshal(r); err != nil {
			return // Not UTF-8: there is no such request.
		}
		m, refused := accept(r)
		if refused != nil {
			checkRefusal(t, refused)
			return
		}
		if declarable(&m) {
			c.carry(t, &m, kinds[int(attempt)%len(kinds)], max(1, int(attempt)))
		}
	})
}

// FuzzPageToken: no text but a token that the server gave leads anywhere in a list.
func FuzzPageToken(f *testing.F) {
	query := unfinished{State: halfmsg.Pending, Producer: "orders"}
	f.Add("", "cursor")
	f.Add("AAAAAAAA", "")
	f.Add(writeToken("1 2", query), "1 2")
	f.Add(writeToken("1 2", unfinished{State: halfmsg.Dead}), "\x00\xff")
	f.Add(writeToken("1-0", history{Producer: "orders"}), "1-0")
	f.Fuzz(func(t *testing.T, token, cursor string) {
		for _, of := range []listing{query, history{Producer: "orders"}} {
			if read, ok := readToken(token, of); ok && writeToken(read, of) != token {
				t.Errorf("%q leads to %q, whose token is %q", token, read, writeToken(read, of))
			}
			if written := writeToken(cursor, of); len(written) <= maxToken {
				if read, ok := readToken(written, of); !ok || read != cursor {
					t.Errorf("the token of %q leads to %q, %t", cursor, read, ok)
				}
			}
		}
	})
}
