package amqpbroker

import "sync"

// alarm stops publishings, as RabbitMQ does without memory or disk space.
type alarm struct {
	reason string
	// over is closed at its end.
	over chan struct{}
}

// Alarm begins an alarm. A connection that publishes gets connection.blocked, and the broker reads nothing more from it
// until the alarm ends. There is one alarm at a time: a later alarm takes the place of an earlier alarm.
func (b *Broker) Alarm(reason string) (end func()) {
	a := &alarm{reason: reason, over: make(chan struct{})}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endAlarm()
	b.alarm = a
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.alarm == a {
			b.endAlarm()
		}
	})
}

// endAlarm ends the alarm, if there is one. Its caller holds the lock.
func (b *Broker) endAlarm() {
	if b.alarm != nil {
		close(b.alarm.over)
		b.alarm = nil
	}
}

// awaitAlarm returns when there is no alarm. The lock is released meanwhile.
func (c *connection) awaitAlarm() {
	b := c.broker
	for b.alarm != nil && !b.closed {
		over := b.alarm.over
		c.send(0, connectionBlocked, encoder(nil).shortString(b.alarm.reason))
		b.mu.Unlock()
		<-over
		b.mu.Lock()
		c.send(0, connectionUnblocked, nil)
	}
}
