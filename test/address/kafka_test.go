package address_test

import (
	"testing"

	"github.com/msghandler/msghandler/internal/ground/address"
)

func TestAddressesOfKafka(t *testing.T) {
	t.Parallel()
	reads(t, address.ParseKafka, map[string]address.Kafka{
		"kafka://h":               {Hosts: []string{"h:9092"}},
		"kafka://h:1/":            {Hosts: []string{"h:1"}},
		"kafka://a:1, b,[::1]:3":  {Hosts: []string{"a:1", "b:9092", "[::1]:3"}},
		"kafka://u:p%2F%40@h":     {Hosts: []string{"h:9092"}, User: "u", Password: "p/@", Mechanism: "plain"},
		"kafka://h?client_id=x":   {Hosts: []string{"h:9092"}, ClientID: "x"},
		"kafka://h?tls=true":      {Hosts: []string{"h:9092"}, TLS: true},
		"kafka://h?tls=false":     {Hosts: []string{"h:9092"}},
		"kafka://h?tls=1&ca=a%2F": {Hosts: []string{"h:9092"}, TLS: true, CA: "a/"},
		"kafka://u:p@a,b?tls=true&sasl=scram-sha-512&skip_verify=true&cert=c&key=k&max_message_bytes=8388608": {
			Hosts: []string{"a:9092", "b:9092"}, User: "u", Password: "p", Mechanism: "scram-sha-512", TLS: true,
			Unverified: true, Cert: "c", Key: "k", MaxMessage: 8 << 20,
		},
	})
}

// Each error says what to do, and quotes nothing.
func TestMalformedAddressesOfKafkaAreRefused(t *testing.T) {
	t.Parallel()
	refuses(t, address.ParseKafka, map[string]string{
		"":                               "is not a URL of the scheme kafka; write kafka://",
		"h:9092":                         "is not a URL of the scheme kafka; write kafka://",
		"amqp://h":                       "is not a URL of the scheme kafka; write kafka://",
		"kafka://":                       "has a host that is none",
		"kafka://a,,b":                   "has a host that is none",
		"kafka://h:99999":                "has a port that is no number from 1 to 65535",
		"kafka://h/geheim":               "has a path, and Kafka has none",
		"kafka://u:ge/heim@h":            "special characters in a user or a password are written as %XX",
		"kafka://h?geheim=geheim":        "there are ca, cert, client_id, key, max_message_bytes, sasl,",
		"kafka://h?tls=geheim":           "has a value of the option tls that cannot be; write true or false",
		"kafka://u:geheim@h?sasl=geheim": "write plain, scram-sha-256, scram-sha-512",
		"kafka://h?sasl=plain":           "has a login without its user or its password",
		"kafka://geheim@h":               "has a login without its user or its password",
		"kafka://h?ca=geheim":            "has an option of TLS and does not ask for TLS; add tls=true",
		"kafka://h?skip_verify=true":     "has an option of TLS and does not ask for TLS; add tls=true",
		"kafka://h?tls=true&cert=geheim": "has one of the options cert and key; give both, or neither",
		"kafka://h?max_message_bytes=9":  "write a number from 1024",
		"kafka://h?tls=true&tls=true":    "has the option tls twice; leave one",
	})
	if got := address.Shown("kafka://u:geheim@a:1,b?sasl=plain"); got != "kafka://u:xxxxx@a:1,b?..." {
		t.Errorf("shown as %q", got)
	}
}
