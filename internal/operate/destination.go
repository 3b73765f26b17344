package operate

import (
	"cmp"
	"slices"

	"github.com/msghandler/msghandler/consumer"
	adminv1 "github.com/msghandler/msghandler/proto/msghandler/admin/v1"
)

// Rule says why a letter of a producer may not be published to an exchange and a routing key.
type Rule func(producer, exchange, routingKey string) error

// check applies the rule to a letter. Nil allows every letter.
func (r Rule) check(l *consumer.Letter) error {
	if r == nil {
		return nil
	}
	return r(l.Producer, l.Exchange, l.RoutingKey)
}

// maxDestinations bounds the destinations of an answer. Letters beyond them are in one line without a routing key.
const (
	maxDestinations  = 100
	otherDestination = "(other destinations)"
)

// destination is where a replay publishes a letter, or why the letter stays.
type destination struct{ exchange, routingKey, refusal string }

// destinations counts letters by where a replay publishes them.
type destinations map[destination]int64

// add counts a letter, and why it must not go there.
func (d destinations) add(l *consumer.Letter, refused error) {
	to := destination{exchange: clean(l.Exchange), routingKey: clean(l.RoutingKey)}
	if refused != nil {
		to.refusal = clean(refused.Error())
	}
	if _, known := d[to]; !known && len(d) >= maxDestinations {
		to = destination{exchange: otherDestination}
		if refused != nil {
			to.refusal = "the configuration does not allow their destinations"
		}
	}
	d[to]++
}

// all are the destinations, the refused ones first, then the largest.
func (d destinations) all() (all []*adminv1.DeadLetterDestination) {
	for to, n := range d {
		all = append(all, &adminv1.DeadLetterDestination{
			Exchange: to.exchange, RoutingKey: to.routingKey, Count: n, Refusal: to.refusal,
		})
	}
	slices.SortFunc(all, func(a, b *adminv1.DeadLetterDestination) int {
		return cmp.Or(cmp.Compare(b.GetRefusal(), a.GetRefusal()), cmp.Compare(b.GetCount(), a.GetCount()),
			cmp.Compare(a.GetExchange(), b.GetExchange()), cmp.Compare(a.GetRoutingKey(), b.GetRoutingKey()))
	})
	return all
}
