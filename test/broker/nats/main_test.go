// Package nats_test tests the publisher of broker/nats on a real nats-server.
package nats_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/servers/natsserver"
)

func TestMain(m *testing.M) {
	if natsserver.Child() {
		return
	}
	goleak.VerifyTestMain(servers.Stopping(m))
}
