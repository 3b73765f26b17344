package amqpbroker

import (
	"slices"
	"sort"
)

// consumer is a subscription of a client to a queue.
type consumer struct {
	tag      string
	channel  *channel
	queue    *queue
	noAck    bool
	prefetch int
	unacked  int
}

// delivery is a message that a client holds unacknowledged. Its consumer is nil for a message fetched with basic.get.
type delivery struct {
	tag      uint64
	message  *message
	queue    *queue
	consumer *consumer
}

// canTake says whether the consumer may get one more message now.
func (k *consumer) canTake() bool {
	full := !k.noAck && k.prefetch > 0 && k.unacked >= k.prefetch
	return !full && !k.channel.conn.gone
}

// deliver sends a message to the consumer.
func (k *consumer) deliver(m *message) {
	ch := k.channel
	ch.deliveryTag++
	if !k.noAck {
		k.unacked++
		ch.unacked = append(ch.unacked, delivery{ch.deliveryTag, m, k.queue, k})
	}
	arguments := encoder(nil).shortString(k.tag).u64(ch.deliveryTag).bit(m.redelivered).
		shortString(m.content.exchange).shortString(m.content.key)
	ch.conn.sendContent(ch.id, basicDeliver, arguments, m.encodedFor(k.queue), m.content.body)
}

// detach ends the consumer. An auto-delete queue is deleted with its last consumer.
func (k *consumer) detach() {
	delete(k.channel.consumers, k.tag)
	k.queue.removeConsumer(k)
}

func (ch *channel) qos(d *decoder) error {
	size, count, global := d.u32(), int(d.u16()), d.u8()&1 != 0
	if d.err != nil {
		return d.err
	}
	if size != 0 {
		return connectionError(codeNotImplemented, "prefetch_size!=0 (%d)", size)
	}
	if global {
		return connectionError(codeNotImplemented, "a prefetch of the channel")
	}
	ch.prefetch = count
	ch.send(basicQosOK, nil)
	return nil
}

func (ch *channel) consume(d *decoder) error {
	d.u16()
	name, tag, flags := d.shortString(), d.shortString(), d.u8()
	d.table()
	if d.err != nil {
		return d.err
	}
	q, err := ch.findQueue(name)
	if err != nil {
		return err
	}
	noAck, exclusive, noWait := flags&2 != 0, flags&4 != 0, flags&8 != 0
	b := ch.conn.broker
	if q.taken || exclusive && len(q.consumers) > 0 {
		return channelError(codeAccessRefused, "queue '%s' in vhost '%s' in exclusive use", q.name, vhost)
	}
	if tag == "" {
		tag = b.newName("amq.ctag")
	}
	if ch.consumers[tag] != nil {
		return connectionError(codeNotAllowed, "attempt to reuse consumer tag '%s'", tag)
	}
	k := &consumer{tag: tag, channel: ch, queue: q, noAck: noAck, prefetch: ch.prefetch}
	ch.consumers[tag] = k
	q.taken = exclusive
	q.addConsumer(k)
	ch.answer(noWait, basicConsumeOK, encoder(nil).shortString(tag))
	q.pump()
	return nil
}

func (ch *channel) cancel(d *decoder) error {
	tag, noWait := d.shortString(), d.u8()&1 != 0
	if d.err != nil {
		return d.err
	}
	if k := ch.consumers[tag]; k != nil {
		k.detach()
	}
	ch.answer(noWait, basicCancelOK, encoder(nil).shortString(tag))
	return nil
}

func (ch *channel) get(d *decoder) error {
	d.u16()
	name, noAck := d.shortString(), d.u8()&1 != 0
	if d.err != nil {
		return d.err
	}
	q, err := ch.findQueue(name)
	if err != nil {
		return err
	}
	m := q.fetch()
	if m == nil {
		ch.send(basicGetEmpty, encoder(nil).shortString(""))
		return nil
	}
	ch.deliveryTag++
	if !noAck {
		ch.unacked = append(ch.unacked, delivery{tag: ch.deliveryTag, message: m, queue: q})
	}
	arguments := encoder(nil).u64(ch.deliveryTag).bit(m.redelivered).
		shortString(m.content.exchange).shortString(m.content.key).u32(uint32(q.ready.len()))
	ch.conn.sendContent(ch.id, basicGetOK, arguments, m.encodedFor(q), m.content.body)
	return nil
}

func (ch *channel) ack(d *decoder) error {
	tag, multiple := d.u64(), d.u8()&1 != 0
	if d.err != nil {
		return d.err
	}
	return ch.settle(tag, multiple, delivery.forget)
}

func (ch *channel) nack(d *decoder) error {
	tag, flags := d.u64(), d.u8()
	if d.err != nil {
		return d.err
	}
	return ch.settle(tag, flags&1 != 0, refusal(flags&2 != 0, delivery.giveBack))
}

func (ch *channel) reject(d *decoder) error {
	tag, requeue := d.u64(), d.u8()&1 != 0
	if d.err != nil {
		return d.err
	}
	return ch.settle(tag, false, refusal(requeue, delivery.fail))
}

// refusal is the handling of a refused delivery: giveBack with requeue, deadLetter without.
func refusal(requeue bool, giveBack func(delivery)) func(delivery) {
	if requeue {
		return giveBack
	}
	return delivery.deadLetter
}

// settle takes deliveries from the client and handles each as the client asked.
func (ch *channel) settle(tag uint64, multiple bool, do func(delivery)) error {
	settled, ok := ch.takeUnacked(tag, multiple)
	if !ok {
		return channelError(codePreconditionFailed, "unknown delivery tag %d", tag)
	}
	for _, d := range settled {
		do(d)
	}
	pumpAll(settled)
	return nil
}

// takeUnacked removes a delivery, or with multiple all up to the tag; then 0 means all deliveries.
func (ch *channel) takeUnacked(tag uint64, multiple bool) (taken []delivery, ok bool) {
	i := sort.Search(len(ch.unacked), func(i int) bool { return ch.unacked[i].tag >= tag })
	found := i < len(ch.unacked) && ch.unacked[i].tag == tag
	switch {
	case multiple && tag == 0:
		taken, ch.unacked = ch.unacked, nil
		return taken, true
	case !found:
		return nil, false
	case multiple || i == 0:
		taken = slices.Clone(ch.unacked[:i+1])
		clear(ch.unacked[:i+1])
		ch.unacked = ch.unacked[i+1:]
	default:
		taken = []delivery{ch.unacked[i]}
		ch.unacked = slices.Delete(ch.unacked, i, i+1)
	}
	return taken, true
}

// forget is for an acknowledged delivery.
func (d delivery) forget() {
	if d.consumer != nil {
		d.consumer.unacked--
	}
}

// giveBack puts a message back to its old place in the queue, unless the message has failed too often.
func (d delivery) giveBack() {
	d.forget()
	d.queue.giveBack(d.message, false)
}

// fail is giveBack, counted as a failed delivery.
func (d delivery) fail() {
	d.forget()
	d.queue.giveBack(d.message, true)
}

// deadLetter is for a message that the client rejected without requeue.
func (d delivery) deadLetter() {
	d.forget()
	d.queue.deadLetter(d.message, reasonRejected)
}

// pumpAll has the queues of deliveries look for consumers again.
func pumpAll(deliveries []delivery) {
	var last *queue
	for _, d := range deliveries {
		if d.queue != last {
			d.queue.pump()
			last = d.queue
		}
	}
}
