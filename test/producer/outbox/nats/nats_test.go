// Package nats_test tests broker/nats/natsoutbox on a real nats-server.
package nats_test

import (
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
