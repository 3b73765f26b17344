package nats_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/msghandler/msghandler/broker/nats"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

func TestPromises(t *testing.T) {
	server := servers.NATS(t, limitedTo("nothing"))
	publishtest.Run(t, &promisedBroker{
		Outages: publishtest.Outages{Server: server, Network: wire.TCP(t, wire.Host(t, server.URL))},
		server:  server, admin: connect(t, as("all", server)),
		next: map[string]uint64{},
	})
}

// limitedTo is a configuration with a user who may publish only to some subjects.
func limitedTo(subjects string) string {
	return fmt.Sprintf(`authorization { users: [
  { user: all, password: its-secret }
  { user: limited, password: its-secret, permissions: { publish: [%q, "$JS.API.>"], subscribe: [">"] } }
] }`, subjects)
}

// promisedBroker is the fixture of package publishtest: a server behind a network that breaks.
type promisedBroker struct {
	publishtest.Outages
	server *servers.NATSServer
	admin  *admin
	// next is the sequence number of each stream that is read next.
	next map[string]uint64
}

func (b *promisedBroker) Open(t *testing.T, confirmTimeout time.Duration) publish.Client {
	t.Helper()
	return b.open(t, "all", confirmTimeout)
}

func (b *promisedBroker) open(t *testing.T, user string, confirmTimeout time.Duration) *nats.Publisher {
	t.Helper()
	config := nats.Config{URL: b.Network.URL(as(user, b.server)), ConfirmTimeout: confirmTimeout}
	config.Logger = publishtest.Logger(t)
	p, err := nats.New(quick(config))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (b *promisedBroker) Target(t *testing.T, name string) publishtest.Target {
	t.Helper()
	b.admin.stream(name, name+".>")
	return publishtest.Target{Exchange: name, Keys: []string{name + ".paid", name + ".sent", name + ".back"}}
}

func (b *promisedBroker) Remove(t *testing.T, target publishtest.Target) (makeAgain func()) {
	t.Helper()
	if err := b.admin.js.DeleteStream(t.Context(), target.Exchange); err != nil {
		t.Fatal(err)
	}
	b.next[target.Exchange] = 0
	return func() { b.Target(t, target.Exchange) }
}

// deadSuffix ends the names of streams for dead messages, whose subjects begin with the name.
const deadSuffix = "-dead"

func (b *promisedBroker) DeadLetters(t *testing.T, origin publishtest.Target) publishtest.Target {
	t.Helper()
	name := origin.Exchange + deadSuffix
	b.admin.stream(name, name+".>")
	return publishtest.Target{Exchange: name, Keys: origin.Keys}
}

func (b *promisedBroker) Refusals(t *testing.T, target publishtest.Target) []publishtest.Refusal {
	t.Helper()
	b.server.Configure(limitedTo(target.Exchange + ".*"))
	b.Target(t, "another")
	b.admin.make(jetstream.StreamConfig{
		Name: "full", Subjects: []string{"full.>"}, MaxMsgs: 1, Discard: jetstream.DiscardNew,
	})
	limited := b.open(t, "limited", 20*time.Second)
	t.Cleanup(func() { closePublisher(t, limited, 15*time.Second) })
	return []publishtest.Refusal{
		{Name: "unknown stream", Spoil: func(m *publish.Message) { m.Exchange = "none" }},
		{Name: "subject of no stream", Spoil: func(m *publish.Message) { m.RoutingKey = "none" }},
		{Name: "subject of another stream", Spoil: func(m *publish.Message) { m.RoutingKey = "another.paid" }},
		{Name: "too large", Spoil: func(m *publish.Message) { m.Body = make([]byte, 2<<20) }},
		{
			Name: "no permission", Spoil: func(m *publish.Message) { m.RoutingKey += ".forbidden" },
			Publisher: limited,
		},
	}
}

func (b *promisedBroker) Read(t *testing.T, target publishtest.Target) (records []publishtest.Record) {
	t.Helper()
	for _, m := range b.admin.read(target.Exchange, b.next[target.Exchange]) {
		b.next[target.Exchange] = m.Sequence + 1
		records = append(records, record(t, target, m))
	}
	return records
}

func record(t *testing.T, target publishtest.Target, m *jetstream.RawStreamMsg) publishtest.Record {
	t.Helper()
	r := publishtest.Record{Exchange: target.Exchange, RoutingKey: m.Subject, Body: m.Data, Headers: map[string]string{}}
	if strings.HasSuffix(target.Exchange, deadSuffix) {
		r.RoutingKey = strings.TrimPrefix(r.RoutingKey, target.Exchange+".")
	}
	var err error
	for key := range m.Header {
		switch value := m.Header.Get(key); key {
		case "msghandler-id":
			r.Name.ID = value
		case "msghandler-producer":
			r.Name.Producer = value
		case "msghandler-attempt":
			r.Attempt, err = strconv.Atoi(value)
		case "msghandler-timestamp":
			r.Timestamp, err = time.Parse(time.RFC3339, value)
		case "content-type":
			r.ContentType = value
		case jetstream.MsgIDHeader, jetstream.ExpectedStreamHeader:
		default:
			r.Headers[key] = value
		}
		if err != nil {
			t.Errorf("header %s: %v", key, err)
		}
	}
	return r
}

// Block ends JetStream: the server is up and answers, and stores nothing.
func (b *promisedBroker) Block(t *testing.T) (unblock func()) {
	t.Helper()
	b.server.DisableJetStream()
	return b.server.EnableJetStream
}
