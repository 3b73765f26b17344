package config_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/test/must"
)

func TestBrokersOfEverySource(t *testing.T) {
	t.Parallel()
	c, err := config.Load(config.Sources{
		File: write(t, `
brokers:
  events: {url: "amqp://file:1/", dead_letter_exchange: graves}
  EU.west-1: {url: "amqps://u:secret@a:1/shop,amqps://b:2/shop"}
`),
		Env: []string{
			"MSGHANDLER_BROKERS_EVENTS_URL=amqp://env:2/", "MSGHANDLER_BROKERS_EU_WEST_1_DEAD_LETTER_EXCHANGE=dead",
			"MSGHANDLER_BROKERS_STOCK_URL=amqp://stock:3/",
		},
		Flags: map[string]string{"brokers.stock.dead_letter_exchange": "late"},
	})
	must.Succeed(t, err)
	want := map[string]config.Broker{
		"events":    {URL: "amqp://env:2/", DeadLetterExchange: "graves"},
		"EU.west-1": {URL: "amqps://u:secret@a:1/shop,amqps://b:2/shop", DeadLetterExchange: "dead"},
		"stock":     {URL: "amqp://stock:3/", DeadLetterExchange: "late"},
	}
	if diff := cmp.Diff(want, c.Brokers); diff != "" {
		t.Errorf("differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"EU.west-1", "events", "stock"}, c.BrokerNames()); diff != "" {
		t.Error(diff)
	}
}

// TestWrongBrokersAreNamed: each mistake is named by its key and remedy, and no password is shown.
func TestWrongBrokersAreNamed(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 65)
	for name, test := range map[string]struct {
		file string
		env  []string
		want []string
	}{
		"unknown scheme": {file: "brokers: {events: {url: \"ftp://u:hunter2@a:1\"}}\n", want: []string{
			"FILE:1: brokers.events.url", "the schemes are amqp, amqps, kafka, nats, tls",
		}},
		"malformed URL": {file: "brokers: {events: {url: \"amqp://u:hunter2@a:b/\"}}\n", want: []string{
			"FILE:1: brokers.events.url",
		}},
		"one of two malformed": {env: []string{"MSGHANDLER_BROKERS_EVENTS_URL=amqp://a:1/,u:hunter2@b"}, want: []string{
			"environment: MSGHANDLER_BROKERS_EVENTS_URL", "is not a URL of the scheme amqp or amqps",
		}},
		"embedded": {file: "brokers: {events: {url: \"embedded:\"}}\n", want: []string{
			"brokers.events.url", "the schemes are",
		}},
		"no URL": {file: "brokers: {events: {dead_letter_exchange: a}}\n", want: []string{
			"FILE:1: brokers.events.dead_letter_exchange", "set brokers.events.url",
		}},
		"unknown key": {file: "brokers: {events: {urls: \"amqp://a:1/\"}}\n", want: []string{
			"FILE:1: brokers.events.urls is not a known key", "brokers.NAME.url",
		}},
		"long name":  {file: "brokers: {" + long + ": {url: \"amqp://a:1/\"}}\n", want: []string{"names no broker"}},
		"other name": {file: "brokers: {\"a b\": {url: \"amqp://a:1/\"}}\n", want: []string{"names no broker"}},
		"of amq": {file: "brokers: {events: {url: \"amqp://a:1/\", dead_letter_exchange: amq.topic}}\n", want: []string{
			"brokers.events.dead_letter_exchange", "begins with amq.",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sources := config.Sources{Env: test.env}
			if test.file != "" {
				sources.File = write(t, test.file)
			}
			_, err := config.Load(sources)
			if err == nil {
				t.Fatal("the configuration was accepted")
			}
			text := strings.ReplaceAll(err.Error(), sources.File, "FILE")
			if test.file == "" {
				text = err.Error()
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("the error lacks %q: %s", want, text)
				}
			}
			if strings.Contains(text, "hunter2") {
				t.Errorf("the error shows a password: %s", text)
			}
		})
	}
}
