package amqpconformance_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/dev/embedded/embeddedtest"
	"github.com/msghandler/msghandler/test/amqpconformance"
	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(servers.Stopping(m)) }

func TestEmbedded(t *testing.T) {
	amqpconformance.Run(t, func(t *testing.T) string { return embeddedtest.Broker(t) })
}

func TestRabbitMQ(t *testing.T) {
	amqpconformance.Run(t, func(t *testing.T) string { return servers.RabbitMQ(t).URL })
}
