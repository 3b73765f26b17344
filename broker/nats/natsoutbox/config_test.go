package natsoutbox_test

import (
	"strings"
	"testing"

	"github.com/msghandler/msghandler/broker/nats/natsoutbox"
)

func TestConfigErrorHidesThePassword(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"nats://orders:s3cr3t@host:port":  "URL cannot be read as a URL",
		"nats://orders:s3cr3t@h?tokn=x":   "has an option behind its ? that there is not",
		"":                                "nats://user:password@host:port",
		"nats://orders:s3cr3t@host:4222/": "Producer is missing",
	} {
		_, err := natsoutbox.New(natsoutbox.Config{URL: url})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want %s", url, err, want)
		}
	}
}
