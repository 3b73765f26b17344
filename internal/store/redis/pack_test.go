package redis_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/s2"
	"github.com/redis/go-redis/v9"

	"github.com/msghandler/msghandler/dev/bench/order"
	"github.com/msghandler/msghandler/internal/halfmsg"
	redisstore "github.com/msghandler/msghandler/internal/store/redis"
	"github.com/msghandler/msghandler/test/must"
)

// packable is a message whose body is packed.
func packable(id string) halfmsg.Message {
	m := half(id)
	m.Body = bytes.Repeat([]byte("body of "+id+"\n"), 100)
	return m
}

func recordOf(t *testing.T, client *redis.Client, id string) string {
	t.Helper()
	return client.Get(t.Context(), key(t, client, "m:"+id)).Val()
}

// A pending message with a body of 1 KiB takes little more memory of Redis than its body, all keys together.
func TestAPendingMessageIsSmall(t *testing.T) {
	t.Parallel()
	const n, size = 5000, 1024
	orders := order.New(size)
	for name, test := range map[string]struct {
		body func(i int) []byte
		most int // bytes
	}{
		"order": {func(i int) []byte { return orders.Of(uint64(i)) }, size * 115 / 100},
		"random": {func(int) []byte {
			body := make([]byte, size)
			_, _ = rand.Read(body)
			return body
		}, size * 145 / 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store, client, _ := fresh(t, redisstore.Config{})
			create(t, store, half("first"))
			before := datasetOf(t, client)
			messages := make([]halfmsg.Message, n)
			for i := range messages {
				m := half(fmt.Sprintf("order-%08d", i))
				m.Body, m.CallbackTarget, m.ConfirmAfter = test.body(i), "orders.internal:9000", time.Hour
				messages[i] = m
			}
			create(t, store, messages...)
			each := (datasetOf(t, client) - before) / n
			t.Logf("%d bytes", each)
			if each > test.most {
				t.Errorf("a pending message of %d bytes takes %d, want at most %d", size, each, test.most)
			}
		})
	}
}

// datasetOf returns how many bytes the data take in Redis.
func datasetOf(t *testing.T, client *redis.Client) int {
	t.Helper()
	_, rest, _ := strings.Cut(client.Info(t.Context(), "memory").Val(), "used_memory_dataset:")
	bytes, err := strconv.Atoi(rest[:strings.IndexByte(rest, '\r')])
	must.Succeed(t, err)
	return bytes
}

// A packed body reads as sent, by every way of reading.
func TestWhatWasPackedComesBack(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"}) // remembers no message
	m := packable("1")
	m.Headers, m.ContentType, m.Trace = map[string]string{"a": "b"}, "text/plain",
		"00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	m.Delay, m.CallbackTarget, m.ConfirmAfter = time.Second, "dns:///orders:9000", time.Minute
	create(t, store, m)
	if got := len(recordOf(t, client, "1")); got > len(m.Body)/2 {
		t.Errorf("a body of %d bytes takes %d", len(m.Body), got)
	}
	same := func(where string, got halfmsg.Message) {
		t.Helper()
		if diff := cmp.Diff(m, got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s:\n%s", where, diff)
		}
	}
	record, err := other.Get(t.Context(), m.Name)
	must.Succeed(t, err)
	same("shown", record.Message)
	claim := submit(t, other, m.Name)[0]
	same("claimed by a Submit", claim.Message)
	settle(t, other, halfmsg.EventReleased, 0, claim)
	claims, err := other.ClaimPending(t.Context(), map[string]int{"orders": 1}, time.Minute)
	if err != nil || len(claims) != 1 {
		t.Fatalf("claimed %d, %v", len(claims), err)
	}
	same("claimed", claims[0].Message)
	page, err := other.List(t.Context(), halfmsg.Query{State: halfmsg.Pending, Exchange: m.Exchange, Limit: 10})
	if err != nil || len(page.Records) != 1 || page.Records[0].LastError != "" || page.Records[0].Body != nil {
		t.Errorf("listed %+v, %v", page, err)
	}
}

// The stripped record of a packed message still recognizes a repeated message, and still holds the callback target.
func TestAPackedMessageIsStripped(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	m := packable("1")
	m.CallbackTarget = "dns:///orders:9000"
	create(t, store, m)
	claims := submit(t, store, m.Name)
	settle(t, store, halfmsg.EventCommitted, time.Minute, claims...)
	settle(t, store, halfmsg.EventAckedMarked, 0, claims...)
	fields := strings.Fields(recordOf(t, client, "1"))
	want := []string{"acknowledged", fields[1], m.Digest(), `{"callback_target":"dns:///orders:9000"}`}
	if !cmp.Equal(fields, want) {
		t.Errorf("left is %q", fields)
	}
	if r := store.Create(t.Context(), []halfmsg.Message{m})[0]; r.Err != nil || r.State != halfmsg.Acknowledged {
		t.Errorf("sent again: %v, %v", r.State, r.Err)
	}
	claims, err := store.ClaimAcknowledged(t.Context(), 1, time.Minute)
	if err != nil || len(claims) != 1 || claims[0].CallbackTarget != m.CallbackTarget {
		t.Errorf("claimed %+v, %v", claims, err)
	}
}

// An incompressible or short body stays unpacked.
func TestIncompressibleBodiesStayUnpacked(t *testing.T) {
	t.Parallel()
	store, client, server := fresh(t, redisstore.Config{})
	other := open(t, redisstore.Config{URL: server.URL(), Prefix: "msghandler"})
	random, short := half("random"), half("short")
	random.Body, short.Body = make([]byte, 1000), make([]byte, 127)
	_, _ = rand.Read(random.Body)
	create(t, store, random, short)
	for _, m := range []halfmsg.Message{random, short} {
		if record := recordOf(t, client, m.ID); !strings.HasPrefix(record, "half ") ||
			!strings.HasSuffix(record, "\n"+string(m.Body)) {
			t.Errorf("%s is kept as %.100q", m.ID, record)
		}
		if claim := submit(t, other, m.Name)[0]; !bytes.Equal(claim.Body, m.Body) {
			t.Errorf("%s came back as %.100q", m.ID, claim.Body)
		}
	}
}

// A record with a wrong size is damaged, and no memory of that size is allocated.
func TestACorruptPackedBodyIsRefused(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	create(t, store, packable("1"))
	name, good := key(t, client, "m:1"), recordOf(t, client, "1")
	size := fmt.Sprintf(" %d {", len(packable("1").Body))
	for what, bad := range map[string]string{
		"another size": strings.Replace(good, size, " 7 {", 1),
		"no size":      strings.Replace(good, size, " {", 1),
		"far too much": "pack 1700000000000 abc 9000000000 {}\n\x80\x80\x80\x80\x0f",
		"too much": fmt.Sprintf("pack 1700000000000 abc %d {}\n%s", halfmsg.MaxBody+1,
			s2.Encode(nil, make([]byte, halfmsg.MaxBody+1))),
		"more than is": "pack 1700000000000 abc 8388608 {}\n\x80\x80\x80\x04",
		"cut off":      good[:len(good)-10],
		"no body":      good[:strings.IndexByte(good, '\n')+1],
	} {
		client.Set(t.Context(), name, bad, 0)
		if record, err := store.Get(t.Context(), half("1").Name); !errors.Is(err, halfmsg.ErrCorrupt) ||
			len(record.Body) > 0 {
			t.Errorf("%s: %d bytes, %v", what, len(record.Body), err)
		}
	}
}

// An impossible size takes no more of a claim than the largest body would.
func TestCorruptPackedBodyDelaysNoOther(t *testing.T) {
	t.Parallel()
	store, client, _ := fresh(t, redisstore.Config{})
	bring(t, store, packable("1"), halfmsg.Sendable)
	bring(t, store, packable("2"), halfmsg.Sendable)
	lie := "pack 1700000000000 abc 99999999999999 {}\n"
	client.Set(t.Context(), key(t, client, "m:1"), lie, 0)
	if claims, err := store.ClaimSendable(t.Context(), 10, time.Minute); err != nil ||
		len(claims) != 1 || claims[0].ID != "2" {
		t.Errorf("claimed %+v, %v", claims, err)
	}
}
