// Package nats_test tests broker/nats/natsoutbox on a real nats-server.
package nats_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/broker/nats/natsoutbox"
	"github.com/msghandler/msghandler/producer"
	sqlmarker "github.com/msghandler/msghandler/producer/marker/sql"
	"github.com/msghandler/msghandler/producer/outbox"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
	"github.com/msghandler/msghandler/test/wire"
)

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	goleak.VerifyTestMain(servers.Stopping(m))
}

func sender(t *testing.T, url string) *natsoutbox.Sender {
	t.Helper()
	s, err := natsoutbox.New(natsoutbox.Config{URL: url, Producer: "orders"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// jetStream is a test's own connection.
func jetStream(t *testing.T, url string) jetstream.JetStream {
	t.Helper()
	conn, err := client.Connect(url, client.MaxReconnects(-1), client.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return js
}

func stream(t *testing.T, js jetstream.JetStream, config jetstream.StreamConfig) jetstream.Stream {
	t.Helper()
	s, err := js.CreateStream(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// paid is the stream of most tests.
var paid = jetstream.StreamConfig{Name: "PAID", Subjects: []string{"paid.>"}}

// queued is a message to the stream PAID.
func queued(id string) sqlmarker.Queued {
	return sqlmarker.Queued{Claims: 1, Message: producer.Message{
		ID: id, Exchange: "PAID", RoutingKey: "paid.x", Body: []byte("paid " + id), ContentType: "text/plain",
		Headers: map[string]string{"trace": "t1"},
	}}
}

func fates(results []outbox.Result) []outbox.Fate {
	all := make([]outbox.Fate, len(results))
	for i, r := range results {
		all[i] = r.Fate
	}
	return all
}

func length(t *testing.T, s jetstream.Stream) uint64 {
	t.Helper()
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return info.State.Msgs
}

func TestMessageArrivesAsEnqueued(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	st := stream(t, jetStream(t, server.URL), paid)
	again := queued("1001")
	again.Claims = 3
	if got := sender(t, server.URL).Send(t.Context(), []sqlmarker.Queued{again}); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got)
	}
	m, err := st.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if m.Subject != "paid.x" || string(m.Data) != "paid 1001" || m.Header.Get("msghandler-timestamp") == "" {
		t.Errorf("%+v", m)
	}
	for name, want := range map[string]string{
		"msghandler-id": "1001", "msghandler-producer": "orders", "content-type": "text/plain", "trace": "t1",
		"msghandler-attempt": "3", "Nats-Msg-Id": "orders/1001",
	} {
		if is := m.Header.Get(name); is != want {
			t.Errorf("the header %s is %q, want %q", name, is, want)
		}
	}
}

func TestRefusedMessageHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t, `authorization { users: [ { user: all, password: p }
		{ user: some, password: p, permissions: { publish: { deny: "paid.secret" } } } ] }`)
	js := jetStream(t, strings.Replace(server.URL, "//", "//all:p@", 1))
	stream(t, js, paid)
	stream(t, js, jetstream.StreamConfig{Name: "MUTE", Subjects: []string{"mute"}, NoAck: true})
	s := sender(t, strings.Replace(server.URL, "//", "//some:p@", 1))
	for name, spoil := range map[string]func(*producer.Message){
		"unknown stream": func(m *producer.Message) { m.Exchange, m.RoutingKey = "NONE", "none" },
		"not its stream": func(m *producer.Message) { m.Exchange = "NONE" },
		"no stream's":    func(m *producer.Message) { m.RoutingKey = "unpaid" },
		"forbidden":      func(m *producer.Message) { m.RoutingKey = "paid.secret" },
		"too large":      func(m *producer.Message) { m.Body = make([]byte, 2<<20) },
		"a command":      func(m *producer.Message) { m.RoutingKey = "$JS.API.STREAM.DELETE.PAID" },
	} {
		t.Run(name, func(t *testing.T) {
			bad := queued(name)
			spoil(&bad.Message)
			results := s.Send(t.Context(), []sqlmarker.Queued{queued("1"), bad, queued("2")})
			if want := []outbox.Fate{outbox.Sent, outbox.Refused, outbox.Sent}; !slices.Equal(fates(results), want) {
				t.Errorf("%+v, want %v", results, want)
			}
		})
	}
	mute := queued("mute")
	mute.Message.Exchange, mute.Message.RoutingKey = "MUTE", "mute"
	batch := []sqlmarker.Queued{queued("3"), mute}
	if got := s.Send(t.Context(), batch); got[0].Fate != outbox.Sent || got[1].Fate != outbox.Unreached || got[1].Unsent {
		t.Errorf("to a stream that acknowledges nothing: %+v", got)
	}
	if got := s.Send(t.Context(), batch); got[1].Fate != outbox.Refused {
		t.Errorf("the next time: %+v", got)
	}
}

// A stream that is deleted and made again takes messages, also those that the first one had.
func TestStreamMadeAgainTakesMessages(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	js := jetStream(t, server.URL)
	stream(t, js, paid)
	s := sender(t, server.URL)
	for _, noticed := range []bool{false, true} {
		if got := s.Send(t.Context(), []sqlmarker.Queued{queued("1")}); got[0].Fate != outbox.Sent {
			t.Fatalf("%+v", got)
		}
		if err := js.DeleteStream(t.Context(), "PAID"); err != nil {
			t.Fatal(err)
		}
		if noticed {
			if got := s.Send(t.Context(), []sqlmarker.Queued{queued("1")}); got[0].Fate != outbox.Refused {
				t.Errorf("without the stream: %+v", got)
			}
		}
		again := stream(t, js, paid)
		if got := s.Send(t.Context(), []sqlmarker.Queued{queued("1")}); got[0].Fate != outbox.Sent || length(t, again) != 1 {
			t.Errorf("to the stream that was made again: %+v", got)
		}
	}
}

// The connection breaks with a batch in flight. Its repeat is stored once.
func TestBrokenConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	st := stream(t, jetStream(t, server.URL), paid)
	x := wire.TCP(t, wire.Host(t, server.URL))
	s := sender(t, x.URL(server.URL))
	var batch []sqlmarker.Queued
	for i := range 100 {
		batch = append(batch, queued(fmt.Sprint(i)))
	}
	if got := s.Send(t.Context(), batch[:1]); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got)
	}
	x.Hold()
	done := make(chan []outbox.Result)
	go func() { done <- s.Send(t.Context(), batch) }()
	x.Disconnect()
	began := time.Now()
	results := <-done
	if took := time.Since(began); took > 8*time.Second { // without the loss it would wait for ten seconds
		t.Errorf("it took %v", took)
	}
	for i, r := range results {
		if r.Fate != outbox.Unreached {
			t.Errorf("message %d: %+v", i, r)
		}
		batch[i].Claims++
	}
	x.Restore()
	servers.Eventually(t, 30*time.Second, "all are sent", func() bool {
		return !slices.ContainsFunc(fates(s.Send(t.Context(), batch)), func(f outbox.Fate) bool { return f != outbox.Sent })
	})
	if n := length(t, st); n != 100 {
		t.Errorf("the stream has %d messages, want 100", n)
	}
}

// A frozen server answers nothing: Send returns with its context, and the messages may be out.
func TestSendReturnsWithItsContext(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	stream(t, jetStream(t, server.URL), paid)
	s := sender(t, server.URL)
	if got := s.Send(t.Context(), []sqlmarker.Queued{queued("1")}); got[0].Fate != outbox.Sent {
		t.Fatalf("%+v", got)
	}
	server.Freeze()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	began := time.Now()
	got := s.Send(ctx, []sqlmarker.Queued{queued("2")})
	if took := time.Since(began); took > 5*time.Second || got[0].Fate != outbox.Unreached || got[0].Unsent {
		t.Errorf("after %v: %+v", took, got)
	}
	server.Thaw()
}

// The first message of a batch goes to a stream that acknowledges nothing. The others are sent, although the time of
// the batch ends before the first has an answer.
func TestSilentStreamKeepsNoAnswerBack(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	js := jetStream(t, server.URL)
	stream(t, js, paid)
	stream(t, js, jetstream.StreamConfig{Name: "MUTE", Subjects: []string{"mute"}, NoAck: true})
	mute := queued("mute")
	mute.Message.Exchange, mute.Message.RoutingKey = "MUTE", "mute"
	batch := []sqlmarker.Queued{mute}
	for i := range 100 {
		batch = append(batch, queued(fmt.Sprint(i)))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	got := fates(sender(t, server.URL).Send(ctx, batch))
	if got[0] != outbox.Unreached || slices.Contains(got[1:], outbox.Unreached) {
		t.Errorf("the results are %v", got)
	}
}

func TestUnreachableServerLeavesMessagesUnsent(t *testing.T) {
	t.Parallel()
	s := sender(t, "nats://"+servers.Addresses(t, 1)[0])
	for _, r := range s.Send(t.Context(), []sqlmarker.Queued{queued("1"), queued("2")}) {
		if r.Fate != outbox.Unreached || r.Err == nil || !r.Unsent {
			t.Errorf("%+v", r)
		}
	}
}

func TestTableKeepsTheDelay(t *testing.T) {
	t.Parallel()
	server := servers.NATS(t)
	st := stream(t, jetStream(t, server.URL), paid)
	s := sender(t, server.URL)
	q := queued("1")
	q.Message.Delay, q.Age = time.Hour, time.Minute
	if got := s.Send(t.Context(), []sqlmarker.Queued{q}); got[0].Fate != outbox.Early || got[0].In != 59*time.Minute {
		t.Errorf("%+v", got)
	}
	q.Age = 3 * time.Hour
	begun := time.Now()
	if got := s.Send(t.Context(), []sqlmarker.Queued{q}); got[0].Fate != outbox.Sent {
		t.Errorf("%+v", got)
	}
	m, err := st.GetMsg(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	due, err := time.Parse(time.RFC3339, m.Header.Get("msghandler-timestamp"))
	if off := due.Sub(begun.Add(-2 * time.Hour)); err != nil || off < 0 || off > time.Minute {
		t.Errorf("the message was due at %v, %v", due, err)
	}
}
