// Package config holds every key of the configuration with its default, meaning and check.
//
// Load merges the sources: flags win over the environment, the environment over the file, the file over the defaults.
// The error lists all problems at once, each with its key, its source and the action.
package config

import (
	"cmp"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Config is the whole configuration. Its fields are the sections, in the order of the reference; see Key for the tags.
type Config struct {
	GRPC           GRPC           `key:"grpc"`
	HTTP           HTTP           `key:"http"`
	Access         Access         `key:"access"`
	Redis          Redis          `key:"redis"`
	AMQP           AMQP           `key:"amqp"`
	Callbacks      Callbacks      `key:"callbacks"`
	Confirm        Confirm        `key:"confirm"`
	Send           Send           `key:"send"`
	Submit         Submit         `key:"submit"`
	DeleteBusiness DeleteBusiness `key:"delete_business"`
	Done           Done           `key:"done"`
	Archive        Archive        `key:"archive"`
	Limits         Limits         `key:"limits"`
	Ordering       Ordering       `key:"ordering"`
	Policy         Policy         `key:"policy"`
	Events         Events         `key:"events"`
	Shutdown       Shutdown       `key:"shutdown"`
	Log            Log            `key:"log"`
	// Brokers holds the brokers beside the one of AMQP, by their names.
	Brokers map[string]Broker `key:"brokers" names:"broker" longest:"64"`
	// DeadLetters holds the queues of consumers' dead letters that the console shows, by their names.
	DeadLetters map[string]DeadLetters `key:"dead_letters" names:"queue of dead letters" longest:"64"`
	// Outbox holds the databases whose outbox of plain SQL is relayed, by their names.
	Outbox map[string]Outbox `key:"outbox" names:"outbox" longest:"64"`
	// Producers holds the settings of single producers, by their names.
	Producers map[string]Producer `key:"producers" names:"producer" longest:"100"`
	// PrivateFiles are the files with secrets that this configuration is made of, or names.
	PrivateFiles []PrivateFile
}

// Trusted says whether a Submit of the producer is the verdict.
func (c *Config) Trusted(producer string) bool {
	if p := c.Producers[producer]; p.Trust != nil {
		return *p.Trust
	}
	return c.Submit.Trust
}

// Secure says whether the producer is called with TLS.
func (c *Config) Secure(producer string) bool {
	if p := c.Producers[producer]; p.TLS != nil {
		return *p.TLS
	}
	return c.Callbacks.TLS
}

// SecuresAny says whether any call to a producer may need the settings of TLS. Messages may name targets of https, so
// certificates are enough.
func (c *Config) SecuresAny() bool {
	return c.secures() || c.Callbacks.Certificates != (Certificates{})
}

// SecuresURLsOnly says that there are certificates for callbacks, and only targets of https are called with TLS.
func (c *Config) SecuresURLsOnly() bool { return c.SecuresAny() && !c.secures() }

// secures says whether a setting has producers called with TLS, independent of their targets.
func (c *Config) secures() bool {
	if c.Callbacks.TLS {
		return true
	}
	for _, p := range c.Producers {
		if p.TLS != nil && *p.TLS {
			return true
		}
	}
	return false
}

func isHTTPS(target string) bool { return strings.HasPrefix(target, "https://") }

// TokenFile names the file with the token for calls to a producer; empty: none.
func (c *Config) TokenFile(producer string) string {
	if p := c.Producers[producer]; p.TokenFile != nil {
		return *p.TokenFile
	}
	return c.Callbacks.TokenFile
}

// TokensInPlain names the keys of tokens sent on connections without TLS, sorted.
func (c *Config) TokensInPlain() (keys []string) {
	if c.Callbacks.TokenFile != "" && !c.Callbacks.TLS {
		keys = append(keys, "callbacks.token_file")
	}
	for name, p := range c.Producers {
		switch {
		case c.Secure(name) || isHTTPS(p.Target) || c.TokenFile(name) == "":
		case p.TokenFile != nil:
			keys = append(keys, "producers."+name+".token_file")
		case p.TLS != nil:
			keys = append(keys, "callbacks.token_file for producer "+name)
		}
	}
	slices.Sort(keys)
	return keys
}

// BrokerNames are the names of the brokers beside the one of AMQP, sorted.
func (c *Config) BrokerNames() []string { return slices.Sorted(maps.Keys(c.Brokers)) }

// PublicOnly says that producers are known by name and only public addresses are called. A glob on addresses names its
// addresses itself.
func (c *Callbacks) PublicOnly() bool {
	return len(c.Networks) == 0 && slices.ContainsFunc(c.Allow, func(glob string) bool {
		host := glob[:strings.LastIndexByte(glob, ':')] // checked by Load
		return !strings.HasPrefix(host, "[") && (host[0] == '*' || strings.Trim(host, "0123456789.*") != "")
	})
}

// Listens are the configured addresses of the listeners, as far as they name a port.
func (c *Config) Listens() (addrs []netip.AddrPort) {
	for _, addr := range []string{c.GRPC.Addr, c.HTTP.Addr} {
		host, port, _ := net.SplitHostPort(addr) // checked by Load
		if isLocalhost(host) {
			host = "127.0.0.1"
		}
		listens, err := netip.ParseAddrPort(net.JoinHostPort(cmp.Or(host, "::"), port))
		if err == nil && listens.Port() != 0 {
			addrs = append(addrs, listens)
		}
	}
	return addrs
}

// Names are the host names under which a browser may open the console, beside localhost.
func (h HTTP) Names() []string {
	host, _, _ := net.SplitHostPort(h.Addr) // checked by Load
	names := append([]string{host}, h.Hosts...)
	if public, err := url.Parse(h.PublicURL); err == nil && public.Host != "" {
		names = append(names, public.Hostname())
	}
	return names
}

// Targets gives the configured callback targets by producer.
func (c *Config) Targets() map[string]string {
	targets := map[string]string{}
	for name, p := range c.Producers {
		if p.Target != "" {
			targets[name] = p.Target
		}
	}
	return targets
}

// MovedTargets returns pairs of callback targets: the former and the current target.
func (c *Config) MovedTargets() (moved [][2]string) {
	for _, pair := range c.Callbacks.Moved {
		from, to, _ := strings.Cut(pair, "=") // checked by Load
		moved = append(moved, [2]string{from, to})
	}
	return moved
}
