package rabbitmqoutbox_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/broker/rabbitmq/rabbitmqoutbox"
)

func TestConfigErrorHidesThePassword(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"amqp://orders:s3cr3t%zz@host:5672/": "amqp://USER:PASSWORD@HOST:PORT/VHOST",
		"amqp://orders:s3cr3t@host:port/":    "amqp://USER:PASSWORD@HOST:PORT/VHOST",
		"":                                   "amqp://USER:PASSWORD@HOST:PORT/VHOST",
		"amqp://orders:s3cr3t@host:5672/":    "Producer is missing",
	} {
		_, err := rabbitmqoutbox.New(rabbitmqoutbox.Config{URL: url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
}
