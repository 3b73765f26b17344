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
	p.confirm = ch.confirms.next()
	verdict := ch.judge(p)
	switch verdict {
	case CutBefore:
		return errCut
	case Refuse:
		return channelError(codeAccessRefused, "access to exchange '%s' in vhost '%s' refused for user '%s'",
			p.content.exchange, ch.conn.broker.config.Vhost, ch.conn.broker.config.User)
	case Nack:
		ch.nackPublishing(p.confirm)
		return nil
	}
	if verdict == Return {
		ch.returnUnrouted(p)
		ch.ackPublishing(p.confirm)
		return nil
	}
	taken := ch.store(p, verdict != DropMessage)
	switch {
	case verdict == CloseConn:
		return errCut
	case verdict == CloseChannel:
		return channelError(codeInternalError, "the judge closed the channel")
	case verdict == DropConfirm:
		ch.confirms.withhold(ch)
	case !taken:
		ch.nackPublishing(p.confirm)
	default:
		ch.ackPublishing(p.confirm)
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
	b := ch.conn.broker
	e, err := ch.findExchange(exchange)
	if err != nil && !b.config.TakeAll {
		return nil, err
	}
	if e != nil && e.internal {
		return nil, channelError(codeAccessRefused, "cannot publish to internal exchange '%s' in vhost '%s'",
			exchange, b.config.Vhost)
	}
	if user, ok := cmd.properties.text(propertyUserID); ok && user != b.config.User {
		return nil, channelError(codePreconditionFailed,
			"user_id property set to '%s' but authenticated user was '%s'", user, b.config.User)
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

// store brings a message to its queues, or returns a mandatory message without queues to the client. taken is false
// when a full queue refused the message. With keep false nothing is stored.
func (ch *channel) store(p *publishing, keep bool) (taken bool) {
	queues := ch.conn.broker.route(p.content)
	if len(queues) == 0 && !ch.conn.broker.config.TakeAll {
		ch.returnUnrouted(p)
	}
	taken = true
	if !keep {
		return taken
	}
	for _, q := range queues {
		if !q.publish(p.content) {
			taken = false
		}
	}
	return taken
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

// confirmRun is how many confirms are held back at most, to be sent together.
const confirmRun = 64

// confirms is the outstanding confirms of a channel in confirm mode. Acknowledgements are held back while more input
// waits, and leave together with the multiple flag.
type confirms struct {
	on       bool
	sequence uint64
	// owed is how many acknowledgements up to last are held back.
	owed int
	last uint64
	// withheld: a confirm was never sent on purpose, so no later confirm may have the multiple flag.
	withheld bool
}

// next numbers a publishing.
func (cs *confirms) next() uint64 {
	if !cs.on {
		return 0
	}
	cs.sequence++
	return cs.sequence
}

// withhold keeps later confirms from covering a publishing without a confirm.
func (cs *confirms) withhold(ch *channel) {
	ch.sendConfirms()
	cs.withheld = true
}

func (ch *channel) ackPublishing(confirm uint64) {
	cs := &ch.confirms
	if confirm == 0 {
		return
	}
	if cs.owed == 0 {
		ch.conn.unconfirmed = append(ch.conn.unconfirmed, ch)
	}
	cs.owed++
	cs.last = confirm
	if cs.withheld || cs.owed >= confirmRun {
		ch.conn.sendConfirms()
	}
}

func (ch *channel) nackPublishing(confirm uint64) {
	if confirm == 0 {
		return
	}
	ch.sendConfirms()
	ch.send(basicNack, encoder(nil).u64(confirm).u8(0))
}

func (ch *channel) sendConfirms() {
	cs := &ch.confirms
	if cs.owed > 0 {
		ch.send(basicAck, encoder(nil).u64(cs.last).bit(cs.owed > 1))
	}
	cs.owed = 0
}
