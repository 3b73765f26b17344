package amqpconformance_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
	"github.com/msghandler/msghandler/test/amqpconformance"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

// embedded starts an embedded broker for the time of a test.
func embedded(t *testing.T) (*amqpbroker.Broker, string) {
	t.Helper()
	b := amqpbroker.New(amqpbroker.Config{})
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	address, err := b.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return b, "amqp://guest:guest@" + address + "/"
}

func TestEmbedded(t *testing.T) {
	amqpconformance.Run(t, func(t *testing.T) string {
		_, url := embedded(t)
		return url
	})
}

func TestRabbitMQ(t *testing.T) {
	amqpconformance.Run(t, func(t *testing.T) string { return servers.RabbitMQ(t).URL })
}

func TestEmbeddedBlocked(t *testing.T) {
	b, url := embedded(t)
	amqpconformance.Blocked(t, url, func() { b.SetBlocked("low on memory") }, func() { b.SetBlocked("") })
}

// An alarm hits a whole node, so this test takes a node of its own.
func TestRabbitMQBlocked(t *testing.T) {
	node := servers.PrivateRabbitMQ(t)
	amqpconformance.Blocked(t, node.URL,
		func() { node.Ctl("set_vm_memory_high_watermark", "0.0001") },
		func() { node.Ctl("set_vm_memory_high_watermark", "0.4") })
}
