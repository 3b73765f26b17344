package amqpbroker

import (
	"slices"
	"strings"
)

// The types of exchanges.
const (
	kindDirect  = "direct"
	kindFanout  = "fanout"
	kindTopic   = "topic"
	kindHeaders = "headers"
)

// exchange is an exchange with its bindings.
type exchange struct {
	name, kind string
	durable    bool
	bindings   []binding
}

type binding struct {
	queue     *queue
	key       string
	arguments table
}

func (x binding) equal(y binding) bool {
	return x.queue == y.queue && x.key == y.key && string(x.arguments.encode()) == string(y.arguments.encode())
}

// standardExchanges are the predeclared exchanges. The nameless exchange reaches every queue by the queue's name.
func standardExchanges() map[string]*exchange {
	all := map[string]*exchange{}
	for name, kind := range map[string]string{
		"": kindDirect, "amq.direct": kindDirect, "amq.fanout": kindFanout, "amq.topic": kindTopic,
		"amq.headers": kindHeaders, "amq.match": kindHeaders,
	} {
		all[name] = &exchange{name: name, kind: kind, durable: true}
	}
	return all
}

// route returns the queues of a message, each once, and none when the exchange is gone.
func (b *Broker) route(c *content) []*queue {
	if c.exchange == "" {
		if q := b.queues[c.key]; q != nil {
			return []*queue{q}
		}
		return nil
	}
	e := b.exchanges[c.exchange]
	if e == nil {
		return nil
	}
	var queues []*queue
	matches := e.matcher(c)
	for _, x := range e.bindings {
		if matches(x) && !slices.Contains(queues, x.queue) {
			queues = append(queues, x.queue)
		}
	}
	return queues
}

// matcher says which bindings a message follows.
func (e *exchange) matcher(c *content) func(binding) bool {
	switch e.kind {
	case kindFanout:
		return func(binding) bool { return true }
	case kindTopic:
		key := words(c.key)
		return func(x binding) bool { return topicMatches(words(x.key), key) }
	case kindHeaders:
		headers := c.properties.headers()
		return func(x binding) bool { return headersMatch(x.arguments, headers) }
	default:
		return func(x binding) bool { return x.key == c.key }
	}
}

func words(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

// topicMatches says whether the words of a routing key match a pattern, where * stands for one word and # for any
// number of them.
func topicMatches(pattern, key []string) bool {
	p, k := 0, 0
	// After a # the pattern starts again at restart, each time with one more word left to the #.
	restart, left := -1, 0
	for k < len(key) {
		switch {
		case p < len(pattern) && pattern[p] == "#":
			p++
			restart, left = p, k
		case p < len(pattern) && (pattern[p] == "*" || pattern[p] == key[k]):
			p++
			k++
		case restart >= 0:
			left++
			p, k = restart, left
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == "#" {
		p++
	}
	return p == len(pattern)
}

// headersMatch says whether headers have all arguments of a binding, or any argument when x-match says so. A void
// argument wants the header with any value.
func headersMatch(wanted, headers table) bool {
	mode, _ := wanted.stringOf("x-match")
	anyOne := strings.HasPrefix(mode, "any")
	for _, f := range wanted {
		if f.name == "x-match" || strings.HasPrefix(f.name, "x-") && !strings.HasSuffix(mode, "-with-x") {
			continue
		}
		have := headers.get(f.name)
		matches := have != nil && (f.value[0] == 'V' || have.plain() == f.value.plain())
		if matches == anyOne {
			return anyOne
		}
	}
	return !anyOne
}

// unbindAll removes all bindings of a queue.
func (b *Broker) unbindAll(q *queue) {
	for _, e := range b.exchanges {
		e.bindings = slices.DeleteFunc(e.bindings, func(x binding) bool { return x.queue == q })
	}
}
