package amqpbroker

import "errors"

// channel is one channel of a connection.
type channel struct {
	id        uint16
	conn      *connection
	consumers map[string]*consumer
	// closing: the broker has closed the channel and waits only for the client's close-ok.
	closing bool
	// lastQueue is the meaning of an empty queue name: the queue declared last.
	lastQueue string

	// prefetch is the limit of future consumers; 0 means no limit.
	prefetch    int
	deliveryTag uint64
	unacked     []delivery

	// confirming says that publishings are confirmed, and published is the number of the last one.
	confirming bool
	published  uint64
}

// channelMethods are the methods of an open channel.
var channelMethods = map[methodID]func(*channel, *decoder) error{
	exchangeDeclare: (*channel).exchangeDeclare,
	exchangeDelete:  (*channel).exchangeDelete,
	queueDeclare:    (*channel).queueDeclare,
	queueBind:       (*channel).queueBind,
	queueUnbind:     (*channel).queueUnbind,
	queuePurge:      (*channel).queuePurge,
	queueDelete:     (*channel).queueDelete,
	basicQos:        (*channel).qos,
	basicConsume:    (*channel).consume,
	basicCancel:     (*channel).cancel,
	basicGet:        (*channel).get,
	basicAck:        (*channel).ack,
	basicNack:       (*channel).nack,
	basicReject:     (*channel).reject,
	confirmSelect:   (*channel).confirmSelect,
}

// handleChannel handles a method of a channel.
func (c *connection) handleChannel(cmd *command) error {
	if c.phase != phaseOpen {
		return connectionError(codeCommandInvalid, "a method of a channel before the connection is open")
	}
	ch := c.channels[cmd.channel]
	switch {
	case cmd.id == channelOpen:
		return c.openChannel(cmd.channel)
	case cmd.id == channelCloseOK:
		if ch != nil && ch.closing {
			delete(c.channels, cmd.channel)
		}
		return nil
	case ch == nil:
		return connectionError(codeChannelError, "expected 'channel.open'")
	case cmd.id == channelClose:
		ch.dropConsumers()
		ch.release(delivery.fail)
		delete(c.channels, cmd.channel)
		c.send(cmd.channel, channelCloseOK, nil)
		return nil
	case ch.closing:
		return nil
	}
	return ch.fail(cmd.id, ch.do(cmd))
}

func (c *connection) openChannel(id uint16) error {
	if c.channels[id] != nil {
		return connectionError(codeChannelError, "second 'channel.open' seen")
	}
	if id == 0 || id > maxChannel {
		return connectionError(codeChannelError, "channel number %d", id)
	}
	c.channels[id] = &channel{id: id, conn: c, consumers: map[string]*consumer{}}
	c.send(id, channelOpenOK, encoder(nil).u32(0))
	return nil
}

// do does one method.
func (ch *channel) do(cmd *command) error {
	if cmd.id == basicPublish {
		return ch.publish(cmd)
	}
	method := channelMethods[cmd.id]
	if method == nil {
		return connectionError(codeNotImplemented, "method %d.%d", cmd.id.class(), cmd.id.number())
	}
	return method(ch, &cmd.arguments)
}

// fail closes the channel for an error of the channel; any other error is the connection's.
func (ch *channel) fail(id methodID, err error) error {
	var e *exception
	if !errors.As(err, &e) {
		if err == nil || errors.Is(err, errCut) {
			return err
		}
		return syntaxError(id, err)
	}
	if e.hard {
		return e
	}
	ch.send(channelClose, encoder(nil).u16(e.code).shortString(e.Error()).u32(uint32(id)))
	ch.closing = true
	ch.dropConsumers()
	ch.release(delivery.fail)
	return nil
}

func (ch *channel) send(id methodID, arguments encoder) {
	ch.conn.send(ch.id, id, arguments)
}

// answer sends the answer to a method, unless the client wants none.
func (ch *channel) answer(noWait bool, id methodID, arguments encoder) {
	if !noWait {
		ch.send(id, arguments)
	}
}

// dropConsumers ends all consumers.
func (ch *channel) dropConsumers() {
	for _, k := range ch.consumers {
		k.detach()
	}
}

// release gives back the unacknowledged deliveries, by giveBack or fail.
func (ch *channel) release(giveBack func(delivery)) {
	unacked := ch.unacked
	ch.unacked = nil
	for _, d := range unacked {
		giveBack(d)
	}
	pumpAll(unacked)
}

func (ch *channel) confirmSelect(d *decoder) error {
	noWait := d.u8()&1 != 0
	if d.err != nil {
		return d.err
	}
	ch.confirming = true
	ch.answer(noWait, confirmSelectOK, nil)
	return nil
}
