package app

import (
	"cmp"
	"fmt"

	"github.com/msghandler/msghandler/internal/config"
	"github.com/msghandler/msghandler/internal/halfmsg"
	"github.com/msghandler/msghandler/internal/server/policy"
)

// LetterRule says why letters of the dead_letters entry with this name, on this broker, may not be replayed to their
// exchange and routing key. Any client that may write to the queue of dead letters chooses both, and the user of the
// replay may publish elsewhere too. So a letter goes to dead_letters.NAME.exchanges; without such exchanges, where its
// producer's messages may go. The settings are asked each time, since a reload changes policies.
func LetterRule(
	settings func() *config.Config, name, broker string,
) func(producer, exchange, routingKey string) error {
	return func(producer, exchange, routingKey string) error {
		c := settings()
		to := policy.Message{Broker: broker, Exchange: exchange, RoutingKey: routingKey}
		entry := entryOf(c, name, broker)
		if own := c.DeadLetters[entry].Exchanges; len(own) > 0 {
			if (&policy.Rules{Exchanges: own}).CheckMessage(producer, to) != nil {
				return fmt.Errorf("exchange %.100q is none of dead_letters.%s.exchanges",
					cmp.Or(exchange, policy.Default), entry)
			}
			return nil
		}
		p := c.PolicyOf(producer)
		rules := policy.Rules{Brokers: p.Brokers, Exchanges: p.Exchanges, RoutingKeys: p.RoutingKeys}
		return rules.CheckMessage(producer, to)
	}
}

// entryOf is the entry of dead_letters that a name means: that of this name, or else that of the queue with this name,
// as of events.dead_letter_queues. Under no name do letters of the entry go where it does not let them.
func entryOf(c *config.Config, name, broker string) string {
	if _, named := c.DeadLetters[name]; named {
		return name
	}
	for _, entry := range c.DeadLetterNames() {
		d := c.DeadLetters[entry]
		if d.Queue == name && cmp.Or(d.Broker, halfmsg.DefaultBroker) == cmp.Or(broker, halfmsg.DefaultBroker) {
			return entry
		}
	}
	return name
}
