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
	Targets []string
	// Brokers are names of brokers, Exchanges and RoutingKeys globs. (default) is the default broker, and the default
	// exchange.
	Brokers, Exchanges, RoutingKeys []string
	// MaxBody and MaxUnfinished are limits.body and limits.unfinished where the producer has none of its own.
	MaxBody       Size
	MaxUnfinished int
	// MaxUnfinishedBytes bounds the bytes of the producer's messages in Redis.
	MaxUnfinishedBytes Size
	// CallsPerSecond bounds the messages that are sent to this coordinator.
	CallsPerSecond int
}

// policyFields are the fields of a single producer that belong to its policy.
var policyFields = []string{
	"targets", "brokers", "exchanges", "routing_keys", "max_body", "max_unfinished", "max_unfinished_bytes",
	"calls_per_second",
}

// Bounds of the numbers of a policy.
const (
	maxCallsPerSecond = 1_000_000
	maxUnfinished     = 1_000_000_000
	maxBytes          = Size(1 << 50)
)

func (p *Policy) keys() []Key {
	return []Key{
		{
			Name: "policy.targets", value: list(&p.Targets, 0, checkAllow),
			Meaning: "Callback targets that messages may name: globs on host:port as in callbacks.allow, which must allow " +
				"the target too. None: all of callbacks.allow. This key and the next ones hold for each producer " +
				"without producers.<name> and the same last part. All of them are read again while the coordinator runs.",
		},
		{
			Name: "policy.brokers", value: list(&p.Brokers, 0, checkBrokerRule),
			Meaning: "Brokers that messages may name: names of brokers.<name>, and (default) for the broker of amqp.url. " +
				"None: all.",
		},
		{
			Name: "policy.exchanges", value: list(&p.Exchanges, 0, checkNameGlob),
			Meaning: "Exchanges that messages may name, on Kafka topics: globs where * is any text, such as shop.*. " +
				"(default) is the default exchange, which no glob matches. None: all exchanges.",
		},
		{
			Name: "policy.routing_keys", value: list(&p.RoutingKeys, 0, checkNameGlob),
			Meaning: "Routing keys that messages may name, on Kafka keys of records, on NATS subjects: globs where * is " +
				"any text. With the default exchange a routing key is a queue. None: all.",
		},
		{
			Name: "policy.max_unfinished_bytes", Default: "0B", value: size(&p.MaxUnfinishedBytes, 0, maxBytes),
			Meaning: "Bytes of the unfinished messages of one producer in Redis, counted about once a second. Above it " +
				"SendHalfMessage gets RESOURCE_EXHAUSTED. 0B: no limit.",
		},
		{
			Name: "policy.calls_per_second", Default: "0", value: whole(&p.CallsPerSecond, 0, maxCallsPerSecond),
			Meaning: "SendHalfMessage calls of one producer a second, at each coordinator. Each message of a batch " +
				"counts as a call. Submit and Rollback are never limited. 0: no limit.",
		},
	}
}

// policyValue binds a field of a producer's policy.
func (p *Producer) policyValue(field string) value {
	switch field {
	case "targets":
		return list(&p.Targets, 0, checkAllow)
	case "brokers":
		return list(&p.Brokers, 0, checkBrokerRule)
	case "exchanges":
		return list(&p.Exchanges, 0, checkNameGlob)
	case "routing_keys":
		return list(&p.RoutingKeys, 0, checkNameGlob)
	case "max_body":
		p.MaxBody = new(Size)
		return size(p.MaxBody, 1, halfmsg.MaxBody)
	case "max_unfinished":
		p.MaxUnfinished = new(int)
		return whole(p.MaxUnfinished, 1, maxUnfinished)
	case "max_unfinished_bytes":
		p.MaxUnfinishedBytes = new(Size)
		return size(p.MaxUnfinishedBytes, 0, maxBytes)
	}
	p.CallsPerSecond = new(int)
	return whole(p.CallsPerSecond, 0, maxCallsPerSecond)
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
	if s != halfmsg.DefaultBroker && (s == "" || checkBrokerName(s) != "") {
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
		key := producersPrefix + name
		known(key+".brokers", p.Brokers)
		if p.MaxBody != nil && *p.MaxBody > c.Limits.Body {
			l.relation(key+".max_body", "is more than %s: set less, or raise the limit of all bodies", l.says("limits.body"))
		}
	}
}
