package address

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// AMQP is the address of a RabbitMQ node.
type AMQP struct {
	// URL is the whole, which the driver reads as well: for the login, the virtual host and the options.
	URL string
	// Host is HOST:PORT, which may be shown.
	Host string
}

const amqpForm = "amqp://user:password@host:port/vhost or amqps://..."

// ports are the default ports.
var ports = map[string]string{"amqp": "5672", "amqps": "5671"}

// ParseAMQP reads the address of a node, amqp://USER:PASSWORD@HOST:PORT/VHOST; amqps:// asks for TLS. The driver
// accepts every accepted address.
func ParseAMQP(text string) (AMQP, error) {
	u, hosts, err := parse(text, amqpForm, "amqp", "amqps")
	switch {
	case err != nil:
		return AMQP{}, err
	case strings.Contains(text, " "):
		return AMQP{}, errors.New("holds a space; write it as %20")
	case len(hosts) > 1:
		return AMQP{}, errors.New("names several hosts; give each node its own URL")
	}
	host, err := readHost(hosts[0], ports[u.Scheme])
	if err != nil {
		return AMQP{}, err
	}
	if err := checkOptions(u); err != nil {
		return AMQP{}, err
	}
	return AMQP{URL: text, Host: host}, nil
}

// checkOptions checks the values that the driver would refuse. Unknown options pass.
func checkOptions(u *url.URL) error {
	given, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errUnreadable
	}
	for name, bits := range map[string]int{"heartbeat": 16, "channel_max": 16, "connection_timeout": 31} {
		if _, err := strconv.ParseUint(given.Get(name), 10, bits); given.Has(name) && err != nil {
			return fmt.Errorf("has a value of the option %s that cannot be; write a number", name)
		}
	}
	for _, name := range given["auth_mechanism"] {
		if !slices.Contains([]string{"PLAIN", "AMQPLAIN", "EXTERNAL"}, strings.ToUpper(name)) {
			return errors.New("has a value of the option auth_mechanism that cannot be; write plain, amqplain or external")
		}
	}
	return nil
}
