package amqpbroker

import (
	"strconv"
	"time"
)

// content is a message as published; queues share the content.
type content struct {
	exchange, key string
	properties    properties
	// encoded is the properties in the format of a header frame.
	encoded []byte
	body    []byte
	// expiration is the message's own time-to-live; negative means none.
	expiration time.Duration
}

// publishing is a message on its way in.
type publishing struct {
	content   *content
	mandatory bool
	// confirm is the number of the confirm; 0 without a confirm.
	confirm uint64
}

// publish does basic.publish.
func (ch *channel) publish(cmd *command) error {
	p, err := ch.incomingPublishing(cmd)
	if err != nil {
		return err
	}
	if ch.confirming {
		ch.published++
		p.confirm = ch.published
	}
	ch.conn.awaitAlarm()
	answer := basicAck
	switch ch.judge(p) {
	case Nack:
		answer = basicNack
	case Return:
		ch.returnUnrouted(p)
	case Forget:
	case CloseConn:
		ch.store(p)
		return errCut
	default:
		ch.store(p)
	}
	if p.confirm > 0 {
		ch.send(answer, encoder(nil).u64(p.confirm).bit(false))
	}
	return nil
}

// incomingPublishing checks a basic.publish of a client.
func (ch *channel) incomingPublishing(cmd *command) (*publishing, error) {
	d := &cmd.arguments
	d.u16()
	exchange, key, flags := d.shortString(), d.shortString(), d.u8()
	if d.err != nil {
		return nil, d.err
	}
	if flags&2 != 0 {
		return nil, connectionError(codeNotImplemented, "immediate=true")
	}
	if _, err := ch.findExchange(exchange); err != nil && !ch.conn.broker.config.TakeAll {
		return nil, err
	}
	expiration, err := parseExpiration(cmd.properties)
	if err != nil {
		return nil, err
	}
	c := &content{
		exchange: exchange, key: key,
		properties: cmd.properties, encoded: cmd.encoded, body: cmd.body, expiration: expiration,
	}
	return &publishing{content: c, mandatory: flags&1 != 0}, nil
}

// noTTL is the time-to-live of messages and queues that never expire.
const noTTL time.Duration = -1

func parseExpiration(p properties) (time.Duration, error) {
	text, ok := p.text(propertyExpiration)
	if !ok {
		return noTTL, nil
	}
	ms, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return 0, channelError(codePreconditionFailed, "invalid expiration '%s'", text)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

// store brings a message to its queues, or returns a mandatory message without queues to the client.
func (ch *channel) store(p *publishing) {
	queues := ch.conn.broker.route(p.content)
	if len(queues) == 0 && !ch.conn.broker.config.TakeAll {
		ch.returnUnrouted(p)
	}
	for _, q := range queues {
		q.enqueue(p.content)
	}
}

// returnUnrouted returns a message to its client, if it is mandatory.
func (ch *channel) returnUnrouted(p *publishing) {
	if !p.mandatory {
		return
	}
	arguments := encoder(nil).u16(codeNoRoute).shortString("NO_ROUTE").
		shortString(p.content.exchange).shortString(p.content.key)
	ch.conn.sendContent(ch.id, basicReturn, arguments, p.content.encoded, p.content.body)
}
