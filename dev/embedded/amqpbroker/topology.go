package amqpbroker

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// findExchange returns the exchange of that name, or the exception for a missing exchange.
func (ch *channel) findExchange(name string) (*exchange, error) {
	b := ch.conn.broker
	e := b.exchanges[name]
	if e == nil {
		return nil, channelError(codeNotFound, "no exchange '%s' in vhost '%s'", name, vhost)
	}
	return e, nil
}

// findQueue returns the queue of that name, or the exception for a missing queue or another connection's queue.
func (ch *channel) findQueue(name string) (*queue, error) {
	if name == "" {
		name = ch.lastQueue
	}
	b := ch.conn.broker
	q := b.queues[name]
	if q == nil {
		return nil, channelError(codeNotFound, "no queue '%s' in vhost '%s'", name, vhost)
	}
	if q.owner != nil && q.owner != ch.conn {
		return nil, channelError(codeResourceLocked,
			"cannot obtain exclusive access to locked queue '%s' in vhost '%s'. It could be originally declared on "+
				"another connection or the exclusive property value does not match that of the original declaration.",
			name, vhost)
	}
	return q, nil
}

// checkReserved is for names reserved for the broker.
func checkReserved(what, name string) error {
	if strings.HasPrefix(name, "amq.") {
		return channelError(codeAccessRefused, "%s name '%s' contains reserved prefix 'amq.*'", what, name)
	}
	return nil
}

// compared is a property that must be the same when something is declared again.
type compared struct {
	argument  string
	got, have string
}

func flag(argument string, got, have bool) compared {
	return compared{argument, quote(strconv.FormatBool(got)), quote(strconv.FormatBool(have))}
}

func quote(s string) string { return "'" + s + "'" }

// checkSame returns the exception for the first property that differs.
func checkSame(what, name string, all []compared) error {
	for _, c := range all {
		if c.got != c.have {
			return channelError(codePreconditionFailed, "inequivalent arg '%s' for %s '%s' in vhost '%s': "+
				"received %s but current is %s", c.argument, what, name, vhost, c.got, c.have)
		}
	}
	return nil
}

func (ch *channel) exchangeDeclare(d *decoder) error {
	d.u16()
	name, kind, flags := d.shortString(), d.shortString(), d.u8()
	d.table()
	if d.err != nil {
		return d.err
	}
	passive, noWait := flags&1 != 0, flags&16 != 0
	if err := ch.declareExchange(&exchange{name: name, kind: kind, durable: flags&2 != 0}, passive); err != nil {
		return err
	}
	ch.answer(noWait, exchangeDeclareOK, nil)
	return nil
}

func (ch *channel) declareExchange(e *exchange, passive bool) error {
	if passive {
		_, err := ch.findExchange(e.name)
		return err
	}
	if !slices.Contains([]string{kindDirect, kindFanout, kindTopic, kindHeaders}, e.kind) {
		return connectionError(codeCommandInvalid, "unknown exchange type '%s'", e.kind)
	}
	if e.name == "" {
		return errDefaultExchange
	}
	b := ch.conn.broker
	if have := b.exchanges[e.name]; have != nil {
		return checkSame("exchange", e.name, []compared{
			{"type", quote(e.kind), quote(have.kind)},
			flag("durable", e.durable, have.durable),
		})
	}
	if err := checkReserved("exchange", e.name); err != nil {
		return err
	}
	b.exchanges[e.name] = e
	return nil
}

var errDefaultExchange = channelError(codeAccessRefused, "operation not permitted on the default exchange")

func (ch *channel) exchangeDelete(d *decoder) error {
	d.u16()
	name, flags := d.shortString(), d.u8()
	if d.err != nil {
		return d.err
	}
	if name == "" {
		return errDefaultExchange
	}
	if err := checkReserved("exchange", name); err != nil {
		return err
	}
	b := ch.conn.broker
	if e := b.exchanges[name]; e != nil && flags&1 != 0 && len(e.bindings) > 0 {
		return channelError(codePreconditionFailed, "exchange '%s' in vhost '%s' in use", name, vhost)
	}
	delete(b.exchanges, name)
	ch.answer(flags&2 != 0, exchangeDeleteOK, nil)
	return nil
}

// DeclareQueue makes a durable queue without a client. A queue of that name may be there already.
func (b *Broker) DeclareQueue(name string) error {
	if name == "" {
		return errors.New("a queue needs a name")
	}
	if err := checkReserved("queue", name); err != nil {
		return err
	}
	plain, err := parseSettings(nil)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queues[name] == nil {
		b.queues[name] = &queue{broker: b, name: name, durable: true, settings: plain}
	}
	return nil
}

func (ch *channel) queueDeclare(d *decoder) error {
	d.u16()
	name, flags := d.shortString(), d.u8()
	arguments := d.table()
	if d.err != nil {
		return d.err
	}
	passive, exclusive, noWait := flags&1 != 0, flags&4 != 0, flags&16 != 0
	q := &queue{
		broker: ch.conn.broker, name: name, arguments: arguments,
		durable: flags&2 != 0, autoDelete: flags&8 != 0,
	}
	if exclusive {
		q.owner = ch.conn
	}
	q, err := ch.declareQueue(q, passive)
	if err != nil {
		return err
	}
	ch.lastQueue = q.name
	ch.answer(noWait, queueDeclareOK,
		encoder(nil).shortString(q.name).u32(uint32(q.ready.len())).u32(uint32(len(q.consumers))))
	return nil
}

// declareQueue returns the existing queue of that name, or else declares this queue.
func (ch *channel) declareQueue(q *queue, passive bool) (*queue, error) {
	b := ch.conn.broker
	if err := checkReserved("queue", q.name); err != nil && !passive {
		return nil, err
	}
	if b.queues[q.name] != nil || passive {
		have, err := ch.findQueue(q.name)
		if err != nil || passive {
			return have, err
		}
		return have, checkSameQueue(q, have)
	}
	var err error
	if q.settings, err = parseSettings(q.arguments); err != nil {
		return nil, channelError(codePreconditionFailed, "%v for queue '%s' in vhost '%s'", err, q.name, vhost)
	}
	if bad := q.quorumMisfit(); bad != "" {
		return nil, channelError(codePreconditionFailed, "invalid property '%s' for queue '%s' in vhost '%s'",
			bad, q.name, vhost)
	}
	if q.name == "" {
		q.name = b.newName("amq.gen")
	}
	b.queues[q.name] = q
	return q, nil
}

// quorumMisfit names the property that quorum queues forbid.
func (q *queue) quorumMisfit() string {
	switch {
	case !q.settings.quorum:
		return ""
	case !q.durable:
		return "non-durable"
	case q.autoDelete:
		return "auto-delete"
	case q.owner != nil:
		return "exclusive-owner"
	}
	return ""
}

func checkSameQueue(q, have *queue) error {
	all := []compared{
		flag("durable", q.durable, have.durable),
		flag("auto_delete", q.autoDelete, have.autoDelete),
		flag("exclusive", q.owner != nil, have.owner != nil),
	}
	for _, name := range comparedArguments {
		all = append(all, compared{name, describe(q.arguments, name), describe(have.arguments, name)})
	}
	return checkSame("queue", q.name, all)
}

// describe gives an argument for comparing and for a text.
func describe(arguments table, name string) string {
	v := arguments.get(name)
	if s, ok := arguments.stringOf(name); ok {
		if name == "x-queue-type" && s == typeClassic {
			return "none"
		}
		return quote(s)
	}
	if n, ok := v.integer(); ok {
		return quote(strconv.FormatInt(n, 10))
	}
	if v == nil {
		return "none"
	}
	return quote(string(v))
}

func (ch *channel) queueBind(d *decoder) error {
	d.u16()
	queueName, exchangeName, key, flags := d.shortString(), d.shortString(), d.shortString(), d.u8()
	arguments := d.table()
	if d.err != nil {
		return d.err
	}
	q, err := ch.findQueue(queueName)
	if err != nil {
		return err
	}
	if exchangeName == "" {
		return errDefaultExchange
	}
	e, err := ch.findExchange(exchangeName)
	if err != nil {
		return err
	}
	x := binding{queue: q, key: key, arguments: arguments}
	if !slices.ContainsFunc(e.bindings, x.equal) {
		e.bindings = append(e.bindings, x)
	}
	ch.answer(flags&1 != 0, queueBindOK, nil)
	return nil
}

// queueUnbind removes a binding. As with RabbitMQ a missing binding is no error.
func (ch *channel) queueUnbind(d *decoder) error {
	d.u16()
	queueName, exchangeName, key := d.shortString(), d.shortString(), d.shortString()
	arguments := d.table()
	if d.err != nil {
		return d.err
	}
	if exchangeName == "" {
		return errDefaultExchange
	}
	b := ch.conn.broker
	if e, q := b.exchanges[exchangeName], b.queues[queueName]; e != nil && q != nil {
		e.bindings = slices.DeleteFunc(e.bindings, binding{queue: q, key: key, arguments: arguments}.equal)
	}
	ch.send(queueUnbindOK, nil)
	return nil
}

func (ch *channel) queuePurge(d *decoder) error {
	d.u16()
	name, noWait := d.shortString(), d.u8()&1 != 0
	if d.err != nil {
		return d.err
	}
	q, err := ch.findQueue(name)
	if err != nil {
		return err
	}
	purged := q.ready.len()
	q.ready = backlog{}
	ch.answer(noWait, queuePurgeOK, encoder(nil).u32(uint32(purged)))
	return nil
}

// queueDelete deletes a queue. As with RabbitMQ a missing queue is no error.
func (ch *channel) queueDelete(d *decoder) error {
	d.u16()
	name, flags := d.shortString(), d.u8()
	if d.err != nil {
		return d.err
	}
	ifUnused, ifEmpty, noWait := flags&1 != 0, flags&2 != 0, flags&4 != 0
	b := ch.conn.broker
	var deleted int
	if name == "" || b.queues[name] != nil {
		q, err := ch.findQueue(name)
		if err != nil {
			return err
		}
		if ifUnused && len(q.consumers) > 0 {
			return channelError(codePreconditionFailed, "queue '%s' in vhost '%s' in use", q.name, vhost)
		}
		if ifEmpty && q.ready.len() > 0 {
			return channelError(codePreconditionFailed, "queue '%s' in vhost '%s' not empty", q.name, vhost)
		}
		deleted = q.ready.len()
		q.delete()
	}
	ch.answer(noWait, queueDeleteOK, encoder(nil).u32(uint32(deleted)))
	return nil
}
