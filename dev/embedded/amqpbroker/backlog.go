package amqpbroker

import (
	"slices"
	"sort"
)

// backlog is the messages of a queue that wait for a consumer, in the order of their positions.
type backlog struct {
	items []*message
	// head is how many places at the front of items are free.
	head int
}

func (l *backlog) len() int { return len(l.items) - l.head }

func (l *backlog) front() *message { return l.items[l.head] }

// push adds a message at the end.
func (l *backlog) push(m *message) {
	// Half of it free: time to move up, so that a queue that is never empty does not grow for ever.
	if l.head > 64 && l.head*2 > len(l.items) {
		n := copy(l.items, l.items[l.head:])
		clear(l.items[n:])
		l.items, l.head = l.items[:n], 0
	}
	l.items = append(l.items, m)
}

// pop takes the first message.
func (l *backlog) pop() *message {
	m := l.items[l.head]
	l.items[l.head] = nil
	l.head++
	return m
}

// putBack puts a message to where its position says, mostly the front.
func (l *backlog) putBack(m *message) {
	waiting := l.items[l.head:]
	i := sort.Search(len(waiting), func(i int) bool { return waiting[i].position > m.position })
	if i == 0 && l.head > 0 {
		l.head--
		l.items[l.head] = m
	} else {
		l.items = slices.Insert(l.items, l.head+i, m)
	}
}
