package rabbitmq_test

import (
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/internal/ground/publish"
	"github.com/msghandler/msghandler/test/broker/publishtest"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

func TestPromises(t *testing.T) {
	node := servers.PrivateRabbitMQ(t)
	publishtest.Run(t, &promisedBroker{
		Outages: publishtest.Outages{Server: node, Network: wire.TCP(t, wire.Host(t, node.URL))}, node: node,
	})
}

// promisedBroker is the fixture of package publishtest: a node behind a network that breaks.
type promisedBroker struct {
	publishtest.Outages
	node *servers.RabbitServer
	// tools is the connection of the current test, for declaring and reading.
	tools *topology
}

// admin connects again after a restart.
func (b *promisedBroker) admin(t *testing.T) *topology {
	t.Helper()
	if b.tools == nil || b.tools.t != t || b.tools.channel.IsClosed() {
		b.tools = declare(t, b.node.URL)
	}
	return b.tools
}

func (b *promisedBroker) Open(t *testing.T, confirmTimeout time.Duration) publish.Client {
	t.Helper()
	return b.open(t, b.node.URL, confirmTimeout)
}

func (b *promisedBroker) open(t *testing.T, url string, confirmTimeout time.Duration) *rabbitmq.Publisher {
	t.Helper()
	config := quick(b.Network.URL(url))
	config.ConfirmTimeout = confirmTimeout
	config.Logger = publishtest.Logger(t)
	p, err := rabbitmq.New(config)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Target makes a topic exchange with one durable queue. The queue is not a quorum queue: on a single node of RabbitMQ
// 3.10 a quorum queue may stay without a leader after a kill.
func (b *promisedBroker) Target(t *testing.T, name string) publishtest.Target {
	t.Helper()
	d := b.admin(t)
	d.must(d.channel.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil))
	d.queue(name, name, "order.#", nil)
	return publishtest.Target{Exchange: name, Keys: []string{"order.paid", "order.sent", "order.back"}}
}

// Remove deletes the exchange and the queue.
func (b *promisedBroker) Remove(t *testing.T, target publishtest.Target) (makeAgain func()) {
	t.Helper()
	d := b.admin(t)
	d.must(d.channel.ExchangeDelete(target.Exchange, false, false))
	_, err := d.channel.QueueDelete(target.Exchange, false, false, false)
	d.must(err)
	return func() { b.Target(t, target.Exchange) }
}

func (b *promisedBroker) DeadLetters(t *testing.T, origin publishtest.Target) publishtest.Target {
	t.Helper()
	return b.Target(t, origin.Exchange+".dead")
}

// Refusals leaves out the size limit, which is 16 MiB or more by default.
func (b *promisedBroker) Refusals(t *testing.T, target publishtest.Target) []publishtest.Refusal {
	t.Helper()
	b.node.Ctl("add_user", "limited", "its-secret")
	b.node.Ctl("set_permissions", "limited", "^$", "^"+target.Exchange+"$", "^$")
	limited := b.open(t, strings.Replace(b.node.URL, "guest:guest", "limited:its-secret", 1), 20*time.Second)
	t.Cleanup(func() { closePublisher(t, limited, 15*time.Second) })
	return []publishtest.Refusal{
		{Name: "unknown exchange", Spoil: func(m *publish.Message) { m.Exchange = "no such exchange" }},
		{Name: "unroutable", Spoil: func(m *publish.Message) { m.RoutingKey = "unbound" }},
		{Name: "no permission", Spoil: func(m *publish.Message) { m.Exchange = "amq.topic" }, Publisher: limited},
	}
}

// Read takes the records out of the queue.
func (b *promisedBroker) Read(t *testing.T, target publishtest.Target) (records []publishtest.Record) {
	t.Helper()
	d := b.admin(t)
	for {
		delivery, found, err := d.channel.Get(target.Exchange, true)
		d.must(err)
		if !found {
			return records
		}
		records = append(records, record(&delivery))
	}
}

func record(d *amqp.Delivery) publishtest.Record {
	r := publishtest.Record{
		Name: publish.Name{Producer: d.AppId, ID: d.MessageId}, Exchange: d.Exchange, RoutingKey: d.RoutingKey,
		ContentType: d.ContentType, Body: d.Body, Timestamp: d.Timestamp, Headers: map[string]string{},
	}
	for key, value := range d.Headers {
		switch value := value.(type) {
		case int64:
			r.Attempt = int(value)
		case string:
			r.Headers[key] = value
		}
	}
	return r
}

func (b *promisedBroker) Block(t *testing.T) (unblock func()) {
	t.Helper()
	b.node.Ctl("set_vm_memory_high_watermark", "absolute", "1")
	return func() { b.node.Ctl("set_vm_memory_high_watermark", "absolute", "1GB") }
}
