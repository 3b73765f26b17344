package letters

import (
	"cmp"
	"slices"

	"github.com/msghandler/msghandler/consumer"
	"github.com/msghandler/msghandler/internal/console/pages"
)

// Rule says why a letter of a producer may not be published to an exchange and a routing key.
type Rule func(producer, exchange, routingKey string) error

// Check applies the rule to a letter. Nil allows every letter.
func (r Rule) Check(l *consumer.Letter) error {
	if r == nil {
		return nil
	}
	return r(l.Producer, l.Exchange, l.RoutingKey)
}

// defaultExchange stands for the default exchange, whose name is empty.
const defaultExchange = "(default)"

// maxDestinations bounds the destinations of a tally. Letters beyond them are in one line without an exchange.
const maxDestinations = 100

// destinations counts letters by where a replay publishes them.
type destinations map[pages.LetterDestination]int

// add counts a letter, and why it must not go there.
func (d destinations) add(l *consumer.Letter, refused error) {
	to := pages.LetterDestination{
		Exchange: cmp.Or(l.Exchange, defaultExchange), RoutingKey: l.RoutingKey, Refused: textOf(refused),
	}
	if _, known := d[to]; !known && len(d) >= maxDestinations {
		to = pages.LetterDestination{Exchange: "(other destinations)", Refused: to.Refused}
	}
	d[to]++
}

// all are the destinations, the refused ones first, then the largest.
func (d destinations) all() (all []pages.LetterDestination) {
	for to, n := range d {
		to.Letters = n
		all = append(all, to)
	}
	slices.SortFunc(all, func(a, b pages.LetterDestination) int {
		return cmp.Or(cmp.Compare(b.Refused, a.Refused), cmp.Compare(b.Letters, a.Letters),
			cmp.Compare(a.Exchange, b.Exchange), cmp.Compare(a.RoutingKey, b.RoutingKey))
	})
	return all
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
