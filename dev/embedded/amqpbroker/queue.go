package amqpbroker

import (
	"slices"
	"time"
)

// message is one queue's copy of a published message.
type message struct {
	content *content
	// position is the message's place in the queue. A message given back keeps its position.
	position    uint64
	redelivered bool
	// acquired is how often a client had the message and gave it back. failures is how many of these count against the
	// delivery limit, as in RabbitMQ 4.3: rejected deliveries and deliveries of closed channels, but not nacked or
	// recovered deliveries.
	acquired, failures int
	// expires is the time of dead-lettering; zero means never.
	expires time.Time
}

// encodedFor returns the properties for the clients of a queue.
func (m *message) encodedFor(q *queue) []byte {
	if !q.settings.quorum || m.acquired == 0 {
		return m.content.encoded
	}
	headers := m.content.properties.headers().set("x-acquired-count", intValue(int64(m.acquired)))
	if m.failures > 0 {
		headers = headers.set("x-delivery-count", intValue(int64(m.failures)))
	}
	return m.content.properties.withHeaders(headers).encode()
}

// queue is a queue with its consumers.
type queue struct {
	broker              *Broker
	name                string
	durable, autoDelete bool
	// owner is the connection of an exclusive queue.
	owner     *connection
	arguments table
	settings  settings

	ready     backlog
	positions uint64
	consumers []*consumer
	// turn is the consumer to ask first for the next message.
	turn int
	// taken: a consumer has exclusive use of the queue.
	taken   bool
	deleted bool

	expiry *time.Timer
}

// enqueue stores a message.
func (q *queue) enqueue(c *content) {
	q.positions++
	m := &message{content: c, position: q.positions, expires: q.expiryOf(c)}
	if q.ready.len() == 0 {
		// Straight through, so that a time-to-live of 0 means: now or never.
		if k := q.nextConsumer(); k != nil {
			k.deliver(m)
			return
		}
	}
	q.ready.push(m)
	q.pump()
}

func (q *queue) expiryOf(c *content) time.Time {
	ttl := c.expiration
	if q.settings.ttl >= 0 && (ttl < 0 || q.settings.ttl < ttl) {
		ttl = q.settings.ttl
	}
	if ttl < 0 {
		return time.Time{}
	}
	return time.Now().Add(ttl)
}

// pump delivers messages to ready consumers and dead-letters expired messages. As with RabbitMQ a message expires only
// at the head of the queue.
func (q *queue) pump() {
	if q.deleted {
		return
	}
	for q.dropExpired(); q.ready.len() > 0; q.dropExpired() {
		k := q.nextConsumer()
		if k == nil {
			break
		}
		k.deliver(q.ready.pop())
	}
	q.watchExpiry()
}

func (q *queue) dropExpired() {
	for q.ready.len() > 0 {
		head := q.ready.front()
		if head.expires.IsZero() || head.expires.After(time.Now()) {
			return
		}
		q.deadLetter(q.ready.pop(), reasonExpired)
	}
}

// watchExpiry has the queue wake up when its head expires.
func (q *queue) watchExpiry() {
	if q.ready.len() == 0 || q.ready.front().expires.IsZero() {
		return
	}
	wait := time.Until(q.ready.front().expires)
	if q.expiry == nil {
		q.expiry = time.AfterFunc(wait, q.pumpLater)
		return
	}
	q.expiry.Reset(wait)
}

// pumpLater is pump for a timer: the queue or the broker may be gone.
func (q *queue) pumpLater() {
	q.broker.mu.Lock()
	defer q.broker.mu.Unlock()
	if !q.broker.closed {
		q.pump()
	}
}

// fetch takes the first message, or gives nil.
func (q *queue) fetch() *message {
	q.dropExpired()
	if q.ready.len() == 0 {
		return nil
	}
	m := q.ready.pop()
	q.watchExpiry()
	return m
}

// giveBack takes back an unacknowledged message, and counts a failure or not.
func (q *queue) giveBack(m *message, failed bool) {
	if q.deleted {
		return
	}
	m.redelivered = true
	m.acquired++
	if failed {
		m.failures++
	}
	if limit := q.settings.deliveryLimit; limit >= 0 && m.failures > limit {
		q.deadLetter(m, reasonDeliveryLimit)
		return
	}
	q.ready.putBack(m)
}

// nextConsumer finds who gets the next message, in turn.
func (q *queue) nextConsumer() *consumer {
	n := len(q.consumers)
	for i := range n {
		at := (q.turn + i) % n
		if k := q.consumers[at]; k.canTake() {
			q.turn = at + 1
			return k
		}
	}
	return nil
}

func (q *queue) addConsumer(k *consumer) {
	q.consumers = append(q.consumers, k)
}

func (q *queue) removeConsumer(k *consumer) {
	at := slices.Index(q.consumers, k)
	if at < 0 {
		return
	}
	q.consumers = slices.Delete(q.consumers, at, at+1)
	if len(q.consumers) > 0 {
		return
	}
	q.taken = false
	if q.autoDelete && !q.deleted {
		q.delete()
	}
}

// delete deletes the queue with all messages and tells its consumers.
func (q *queue) delete() {
	q.deleted = true
	q.stopTimer()
	delete(q.broker.queues, q.name)
	q.broker.unbindAll(q)
	for _, k := range slices.Clone(q.consumers) {
		if !k.channel.conn.gone {
			k.channel.send(basicCancel, encoder(nil).shortString(k.tag).bit(true))
		}
		k.detach()
	}
	q.ready = backlog{}
}

func (q *queue) stopTimer() {
	if q.expiry != nil {
		q.expiry.Stop()
	}
}
