package brokers_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/msghandler/msghandler/internal/app/brokers"
	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/ground/publish"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestEachCheckedSchemeOpens: what the configuration accepts can be opened, and nothing else.
func TestEachCheckedSchemeOpens(t *testing.T) {
	t.Parallel()
	if diff := cmp.Diff(config.BrokerSchemes(), brokers.Schemes()); diff != "" {
		t.Fatalf("the configuration and the publishers know other schemes (-config +publishers):\n%s", diff)
	}
	c := publish.Config{ConfirmTimeout: time.Second, Window: 10, Logger: slog.New(slog.DiscardHandler)}
	for _, scheme := range brokers.Schemes() {
		c.URL = scheme + "://127.0.0.1:1,127.0.0.1:2"
		if brokers.System(c.URL) == "rabbitmq" {
			c.URL = scheme + "://127.0.0.1:1/," + scheme + "://127.0.0.1:2/"
		}
		publisher, err := brokers.Open(c)
		if err != nil || brokers.System(c.URL) == "" {
			t.Errorf("%s: %v, of the kind %q", scheme, err, brokers.System(c.URL))
			continue
		}
		if publisher.Ready() == nil || publisher.InFlight() != 0 {
			t.Errorf("%s: a broker that nobody listens for takes messages", scheme)
		}
		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	c.URL = "ftp://127.0.0.1"
	if _, err := brokers.Open(c); err == nil || !strings.Contains(err.Error(), "the schemes are") {
		t.Errorf("another scheme: %v", err)
	}
}
