// Package kafka_test tests the publisher of broker/kafka on kfake.
package kafka_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/test/servers"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(servers.Stopping(m))
}
