// Package embeddedtest starts embedded servers for tests that need no real ones.
package embeddedtest

import (
	"log/slog"
	"testing"

	"github.com/msghandler/msghandler/dev/embedded"
	"github.com/msghandler/msghandler/dev/embedded/amqpbroker"
)

const anyPort = "127.0.0.1:0"

// Redis returns the URL of a Redis that is closed when the test ends.
func Redis(t testing.TB) string {
	t.Helper()
	redis, err := embedded.StartRedis(anyPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	return redis.URL()
}

// Broker returns the URL of an AMQP broker that is closed when the test ends.
func Broker(t testing.TB) string {
	t.Helper()
	broker := amqpbroker.New(amqpbroker.Config{Logger: slog.New(slog.DiscardHandler)})
	address, err := broker.Listen(anyPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	return "amqp://guest:guest@" + address + "/"
}
