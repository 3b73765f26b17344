package compare

import (
	"encoding/binary"
	"io"
	"strconv"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/msghandler/msghandler/internal/ground/publish"
)

// queueName is the queue of every system: a quorum queue, through the default exchange.
const queueName = "orders"

// consumer notes every message, and tells the service which have arrived.
type consumer struct {
	url string

	mu sync.Mutex
	// copies are the deliveries of each message; flagged are further copies that say that they may be copies.
	copies          map[uint64]int
	further, marked int
	// to is the input of the service that runs.
	to io.Writer
	// closed ends reconnecting; connection is the current connection.
	closed     bool
	connection *amqp.Connection
	work       sync.WaitGroup
}

func startConsumer(t testing.TB, url string) *consumer {
	t.Helper()
	c := &consumer{url: url, copies: map[uint64]int{}}
	deliveries, err := c.open()
	if err != nil {
		t.Fatal(err)
	}
	c.work.Go(func() { c.consume(deliveries) })
	t.Cleanup(c.close)
	return c
}

const prefetch = 2000

func (c *consumer) open() (<-chan amqp.Delivery, error) {
	connection, err := amqp.Dial(c.url)
	if err != nil {
		return nil, err
	}
	deliveries, err := subscribe(connection)
	if err != nil {
		_ = connection.Close()
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connection = connection
	return deliveries, nil
}

func subscribe(connection *amqp.Connection) (<-chan amqp.Delivery, error) {
	channel, err := connection.Channel()
	if err != nil {
		return nil, err
	}
	args := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum}
	if _, err = channel.QueueDeclare(queueName, true, false, false, false, args); err != nil {
		return nil, err
	}
	if err = channel.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	return channel.Consume(queueName, "", false, false, false, false, nil)
}

// consume notes deliveries, and connects again after an outage.
func (c *consumer) consume(deliveries <-chan amqp.Delivery) {
	for {
		c.drain(deliveries)
		for {
			if c.isClosed() {
				return
			}
			var err error
			if deliveries, err = c.open(); err == nil {
				break
			}
			<-time.After(20 * time.Millisecond)
		}
	}
}

func (c *consumer) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// acknowledgeEach is how many deliveries one acknowledgement covers where deliveries wait.
const acknowledgeEach = 100

func (c *consumer) drain(deliveries <-chan amqp.Delivery) {
	unacknowledged := 0
	for d := range deliveries {
		c.note(d)
		if unacknowledged++; unacknowledged >= acknowledgeEach || len(deliveries) == 0 {
			_ = d.Ack(true) // a lost acknowledgement is a redelivery
			unacknowledged = 0
		}
	}
}

// note counts a delivery. A redelivery by the broker is no copy by the publisher.
func (c *consumer) note(d amqp.Delivery) {
	number, err := strconv.ParseUint(d.MessageId, 10, 64)
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.copies[number] > 0
	if known && d.Redelivered {
		return
	}
	c.copies[number]++
	if !known {
		c.tell(number)
		return
	}
	c.further++
	if flagged(d.Headers) {
		c.marked++
	}
}

// flagged says whether a message names itself a possible copy.
func flagged(headers amqp.Table) bool {
	for _, header := range []string{publish.HeaderAttempt, "attempt"} {
		if attempt, is := headers[header].(int64); is && attempt > 1 {
			return true
		}
	}
	return false
}

// tell writes a number to the service; a service that was killed hears nothing.
func (c *consumer) tell(number uint64) {
	if c.to != nil {
		_ = binary.Write(c.to, binary.LittleEndian, number)
	}
}

// feed has the consumer tell the numbers of messages to a service; nil ends this.
func (c *consumer) feed(to io.Writer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.to = to
}

// send tells the running service a number.
func (c *consumer) send(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tell(number)
}

// counts are how many messages arrived, how many further copies, and how many of these were flagged.
func (c *consumer) counts() (messages, further, marked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.copies), c.further, c.marked
}

// missing counts the numbers that have not arrived.
func (c *consumer) missing(numbers []uint64) (missing int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, number := range numbers {
		if c.copies[number] == 0 {
			missing++
		}
	}
	return missing
}

func (c *consumer) close() {
	c.mu.Lock()
	c.closed = true
	connection := c.connection
	c.mu.Unlock()
	_ = connection.Close()
	c.work.Wait()
}
