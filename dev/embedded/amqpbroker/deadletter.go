package amqpbroker

import (
	"slices"
	"time"
)

// Why a message was dead-lettered, as it stands in x-death.
const (
	reasonRejected      = "rejected"
	reasonExpired       = "expired"
	reasonDeliveryLimit = "delivery_limit"
)

// deadLetter brings a message to the queue's dead-letter exchange, if the queue has one.
func (q *queue) deadLetter(m *message, reason string) {
	b := q.broker
	if !q.settings.hasDeadExchange || b.exchanges[q.settings.deadExchange] == nil {
		return
	}
	dead := q.deadContent(m, reason)
	deaths := dead.properties.headers().arrayOf("x-death")
	for _, target := range b.route(dead) {
		if reason == reasonRejected || !circles(target.name, deaths) {
			target.enqueue(dead)
		}
	}
}

// deadContent returns the message with the dead-letter headers.
func (q *queue) deadContent(m *message, reason string) *content {
	dead := *m.content
	dead.exchange = q.settings.deadExchange
	if q.settings.hasDeadKey {
		dead.key = q.settings.deadKey
	}
	headers := m.content.properties.headers()
	headers = headers.set("x-death", arrayValue(q.deathsOf(m, headers, reason)))
	dead.properties = m.content.properties.withHeaders(headers)
	// With an expiration the message would expire in the next queue too. x-death keeps the old value.
	dead.properties[propertyExpiration] = nil
	dead.expiration = noTTL
	dead.encoded = dead.properties.encode()
	return &dead
}

// deathsOf returns the new x-death: an entry for each queue and reason, the latest first.
func (q *queue) deathsOf(m *message, headers table, reason string) []value {
	deaths := slices.Clone(headers.arrayOf("x-death"))
	count := int64(1)
	for i, v := range deaths {
		d := deathTable(v)
		if name, _ := d.stringOf("queue"); name != q.name {
			continue
		}
		if why, _ := d.stringOf("reason"); why != reason {
			continue
		}
		if before, ok := d.get("count").integer(); ok {
			count += before
		}
		deaths = slices.Delete(deaths, i, i+1)
		break
	}
	death := table{
		{"count", intValue(count)},
		{"exchange", stringValue(m.content.exchange)},
		{"queue", stringValue(q.name)},
		{"reason", stringValue(reason)},
		{"routing-keys", arrayValue([]value{stringValue(m.content.key)})},
		{"time", timeValue(time.Now())},
	}
	if expiration, ok := m.content.properties.text(propertyExpiration); ok {
		death = append(death, field{"original-expiration", stringValue(expiration)})
	}
	return slices.Insert(deaths, 0, tableValue(death))
}

func deathTable(v value) table {
	return table{{"", v}}.tableOf("")
}

// circles says whether a message with this x-death has been in a queue before and no client has rejected the message
// since. Such a message would go round without end.
func circles(queue string, deaths []value) bool {
	for _, v := range deaths {
		d := deathTable(v)
		if reason, ok := d.stringOf("reason"); !ok || reason == reasonRejected {
			return false
		}
		if name, _ := d.stringOf("queue"); name == queue {
			return true
		}
	}
	return false
}
