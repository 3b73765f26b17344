package rabbitmq_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/msghandler/msghandler/broker/rabbitmq"
	"github.com/msghandler/msghandler/test/servers"
	"github.com/msghandler/msghandler/test/wire"
)

func TestUnsupportedBrokerIsLogged(t *testing.T) {
	t.Parallel()
	broker := servers.RabbitMQ(t).URL
	health, err := rabbitmq.Examine(t.Context(), rabbitmq.Config{URL: broker})
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(health.Server, " ")
	for as, wanted := range map[string]bool{version: false, "2.9." + strings.Repeat("1", len(version)-4): true} {
		var logged bytes.Buffer
		p, err := rabbitmq.New(rabbitmq.Config{
			URL:    wire.Rewrite(t, wire.Host(t, broker), version, as).URL(broker),
			Logger: slog.New(slog.NewTextHandler(&logged, nil)),
		})
		if err != nil {
			t.Fatal(err)
		}
		ready(t, p)
		closePublisher(t, p, 15*time.Second)
		if strings.Contains(logged.String(), "version is not supported") != wanted {
			t.Errorf("RabbitMQ %s logs\n%s", as, &logged)
		}
	}
}
