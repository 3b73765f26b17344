package bench

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"
)

// consumed is a queue of setup.message, and its consumer, which takes messages as they come: a broker with a large
// backlog runs low on memory, and takes nothing more.
type consumed struct {
	// ids counts the messages that have arrived, and copies their further copies.
	ids, copies atomic.Int64
}

// idPrefix begins the ids of setup.message; their numbers follow.
const idPrefix = "m-"

// openQueue makes the queue and consumes from it until the benchmark is over.
func (s *setup) openQueue() *consumed {
	connection, err := amqp.Dial(s.rabbit.URL)
	s.must(err)
	var consuming sync.WaitGroup
	s.b.Cleanup(func() { connection.Close(); consuming.Wait() })
	channel, err := connection.Channel()
	s.must(err)
	_, err = channel.QueueDeclare(queueName, true, false, false, false,
		amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum})
	s.must(err)
	_, err = channel.QueuePurge(queueName, false) // another world's copies
	s.must(err)
	deliveries, err := channel.Consume(queueName, "", true, true, false, false, nil)
	s.must(err)
	q := &consumed{}
	consuming.Go(func() { q.count(s, deliveries) })
	return q
}

// count counts deliveries until the connection ends.
func (q *consumed) count(s *setup, deliveries <-chan amqp.Delivery) {
	var seen []bool
	for d := range deliveries {
		text, ours := strings.CutPrefix(d.MessageId, idPrefix)
		number, err := strconv.Atoi(text)
		if !ours || err != nil || number < 0 || uint64(number) > s.ids.Load() {
			s.b.Errorf("a message %q was delivered that was never sent", d.MessageId)
			continue
		}
		if missing := number + 1 - len(seen); missing > 0 {
			seen = append(seen, make([]bool, missing)...)
		}
		if seen[number] {
			q.copies.Add(1)
			continue
		}
		seen[number] = true
		q.ids.Add(1)
	}
}
