// Package rabbitmq_test tests the publisher of broker/rabbitmq on a real RabbitMQ.
package rabbitmq_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(servers.Stopping(m))
}
