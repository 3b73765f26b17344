package amqpconformance

import (
	amqp "github.com/rabbitmq/amqp091-go"
)

// routed publishes without asking for a route, and says how many messages the queues have then.
func (f *fixture) routed(exchange string, keys []string, headers amqp.Table) {
	f.Helper()
	f.must(f.ch.Confirm(false))
	for _, key := range keys {
		confirm, err := f.ch.PublishWithDeferredConfirm(exchange, key, false, false,
			amqp.Publishing{Body: []byte(key), Headers: headers})
		f.must(err)
		f.confirmed(confirm)
	}
}

func topicRouting(f *fixture) {
	f.exchange("topics", "topic")
	keys := []string{"order.a.created", "order.b.created", "order.a.deleted", "order.a.b.created", "order", "", "a..b"}
	for pattern, want := range map[string]int{
		"order.*.created": 2, "order.#": 5, "#": 7, "*": 1, "#.created": 3, "order.*.*.created": 1, "#.b.#": 3,
		"order.#.#.created": 3, "*.*.*": 4, "order.*.#.created": 3, "nothing": 0, "a.*.b": 1,
	} {
		f.queue(pattern, nil)
		f.bind(pattern, pattern, "topics")
		defer func() { f.eventuallyReady(pattern, want) }()
	}
	f.routed("topics", keys, nil)
}

func otherRouting(f *fixture) {
	f.exchange("everyone", "fanout")
	f.exchange("one", "direct")
	f.queue("first", nil)
	f.queue("second", nil)
	f.bind("first", "", "everyone")
	f.bind("second", "any", "everyone")
	f.bind("first", "k", "one")
	f.bind("first", "k2", "one")
	f.bind("first", "k", "one") // a second time changes nothing
	f.routed("everyone", []string{"a"}, nil)
	f.routed("one", []string{"k", "k2", "k3"}, nil)
	f.routed("", []string{"second", "second", "third"}, nil)
	f.eventuallyReady("first", 3)
	f.eventuallyReady("second", 3)
}

func headersRouting(f *fixture) {
	f.exchange("heads", "headers")
	for name, arguments := range map[string]amqp.Table{
		"all": {"x-match": "all", "color": "red", "size": int64(3)},
		"any": {"x-match": "any", "color": "red", "size": int64(3)},
	} {
		f.queue(name, nil)
		f.must(f.ch.QueueBind(name, "", "heads", false, arguments))
	}
	f.routed("heads", []string{""}, amqp.Table{"color": "red", "size": int64(3)})
	f.routed("heads", []string{""}, amqp.Table{"color": "red", "size": int64(4)})
	f.routed("heads", []string{""}, amqp.Table{"color": "blue"})
	f.eventuallyReady("all", 1)
	f.eventuallyReady("any", 2)
}

func unbinding(f *fixture) {
	f.exchange("one", "direct")
	f.queue("q", nil)
	f.bind("q", "a", "one")
	f.bind("q", "b", "one")
	f.must(f.ch.QueueUnbind("q", "a", "one", nil))
	f.must(f.ch.QueueUnbind("q", "never", "one", nil))
	f.routed("one", []string{"a", "b"}, nil)
	f.eventuallyReady("q", 1)
	f.must(f.ch.ExchangeDelete("one", false, false))
	f.must(f.ch.ExchangeDelete("one", false, false))
}
