package config

import (
	"cmp"
	"errors"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// Policy says what the messages of a producer may name, and how much a producer may hold. As a section of the
// configuration it holds for every producer without settings of its own. Zero values allow everything.
type Policy struct {
	// Targets are globs on the callback targets that messages may name, in the form of callbacks.allow.
	Targets []string `key:"targets" check:"targets" reload:"yes"`
	// Brokers are names of brokers, Exchanges and RoutingKeys globs. (default) is the default broker, and the default
	// exchange.
	Brokers     []string `key:"brokers" check:"broker name" reload:"yes"`
	Exchanges   []string `key:"exchanges" check:"name glob" reload:"yes"`
	RoutingKeys []string `key:"routing_keys" check:"name glob" reload:"yes"`
	// MaxBody and MaxUnfinished are limits.body and limits.unfinished where the producer has none of its own.
	MaxBody       Size
	MaxUnfinished int
	// MaxUnfinishedBytes bounds the bytes of the producer's messages in Redis.
	MaxUnfinishedBytes Size `key:"max_unfinished_bytes" default:"0B" bounds:"0 1048576GiB" reload:"yes"`
	// CallsPerSecond bounds the messages that are sent to this coordinator.
	CallsPerSecond int `key:"calls_per_second" default:"0" bounds:"0 1000000" reload:"yes"`
}

// PolicyOf is the policy of a producer: its own settings, and those for all producers where it has none.
func (c *Config) PolicyOf(producer string) Policy {
	p, all := c.Producers[producer], c.Policy
	all.MaxBody, all.MaxUnfinished = c.Limits.Body, c.Limits.Unfinished
	own := func(own, all []string) []string {
		if len(own) > 0 {
			return own
		}
		return all
	}
	return Policy{
		Targets: own(p.Targets, all.Targets), Brokers: own(p.Brokers, all.Brokers),
		Exchanges: own(p.Exchanges, all.Exchanges), RoutingKeys: own(p.RoutingKeys, all.RoutingKeys),
		MaxBody: *cmp.Or(p.MaxBody, &all.MaxBody), MaxUnfinished: *cmp.Or(p.MaxUnfinished, &all.MaxUnfinished),
		MaxUnfinishedBytes: *cmp.Or(p.MaxUnfinishedBytes, &all.MaxUnfinishedBytes),
		CallsPerSecond:     *cmp.Or(p.CallsPerSecond, &all.CallsPerSecond),
	}
}

// checkBrokerRule accepts the name of a broker, or the default broker.
func checkBrokerRule(s string) error {
	if s != halfmsg.DefaultBroker && !isName(s, 64) {
		return errors.New("names no broker; write NAME of brokers.NAME.url, or " + halfmsg.DefaultBroker)
	}
	return nil
}

// checkNameGlob accepts a glob on names of exchanges, or on routing keys.
func checkNameGlob(s string) error {
	if s == "" || len(s) > 255 {
		return errors.New("is no glob on names; it has 1 to 255 bytes, and * is any text")
	}
	return nil
}

// checkPolicy refuses brokers that do not exist, and bodies above the limit of all bodies.
func (l *loading) checkPolicy() {
	c := &l.config
	known := func(key string, names []string) {
		for _, name := range names {
			if _, is := c.Brokers[name]; !is && name != halfmsg.DefaultBroker {
				l.relation(key, "names the broker %s, which does not exist: set brokers.%s.url, or remove the name", name, name)
			}
		}
	}
	known("policy.brokers", c.Policy.Brokers)
	for name, p := range c.Producers {
		key := "producers." + name
		known(key+".brokers", p.Brokers)
		if p.MaxBody != nil && *p.MaxBody > c.Limits.Body {
			l.relation(key+".max_body", "is more than %s: set less, or raise the limit of all bodies", l.says("limits.body"))
		}
	}
}
