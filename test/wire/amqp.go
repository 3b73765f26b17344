package wire

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"
)

// Kinds of frames.
const (
	methodFrame = 1
	headerFrame = 2
)

// methods are the methods with names here.
var methods = map[uint32]string{
	10<<16 | 40: "connection.open", 10<<16 | 50: "connection.close", 20<<16 | 10: "channel.open",
	20<<16 | 40: "channel.close",
	60<<16 | 40: "basic.publish", 60<<16 | 50: "basic.return", 60<<16 | 60: "basic.deliver",
	60<<16 | 80: "basic.ack", 60<<16 | 120: "basic.nack",
}

// withContent are the methods with a header and a body. Their event comes with the header, which names the message;
// without the header the other side can do nothing with the method.
var withContent = []string{"basic.publish", "basic.return", "basic.deliver"}

// amqpTap reads AMQP 0-9-1 frames.
type amqpTap struct {
	greeted bool // the client's protocol header has passed

	mu       sync.Mutex
	channels map[uint16]*amqpChannel
}

// amqpChannel is a tap's state of one channel.
type amqpChannel struct {
	content [2]string // the method whose content comes next, in each direction
	// published counts publishes, in the broker's numbering; open are the publishes without an answer.
	published uint64
	open      map[uint64]Message
}

func newAMQPTap() *amqpTap { return &amqpTap{channels: map[uint16]*amqpChannel{}} }

func (x *amqpTap) next(phase Phase, from *bufio.Reader) ([]byte, []Event, error) {
	if phase == Request && !x.greeted {
		x.greeted = true
		raw := make([]byte, 8)
		_, err := io.ReadFull(from, raw)
		return raw, nil, err
	}
	head, err := from.Peek(7)
	if err != nil {
		return nil, nil, err
	}
	kind, channel, size := head[0], binary.BigEndian.Uint16(head[1:]), int(binary.BigEndian.Uint32(head[3:]))
	raw := make([]byte, 7+size+1)
	if _, err := io.ReadFull(from, raw); err != nil {
		return nil, nil, err
	}
	if end := raw[len(raw)-1]; end != 0xCE {
		return nil, nil, &strangeError{fmt.Sprintf("a frame that ends with %#x", end)}
	}
	event := x.event(phase, kind, channel, raw[7:len(raw)-1])
	event.Phase = phase
	return raw, []Event{event}, nil
}

func (x *amqpTap) event(phase Phase, kind byte, number uint16, payload []byte) Event {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.channels[number]
	if c == nil {
		c = &amqpChannel{open: map[uint64]Message{}}
		x.channels[number] = c
	}
	switch {
	case kind == methodFrame && len(payload) >= 4:
		return c.method(phase, binary.BigEndian.Uint32(payload), payload[4:])
	case kind == headerFrame:
		return c.header(phase, payload)
	}
	return Event{}
}

func (c *amqpChannel) method(phase Phase, id uint32, args []byte) Event {
	name, known := methods[id]
	if !known {
		name = fmt.Sprintf("%d.%d", id>>16, id&0xffff)
	}
	if slices.Contains(withContent, name) {
		c.content[phase] = name
		return Event{}
	}
	event := Event{Name: name}
	if name == "channel.open" {
		*c = amqpChannel{open: map[uint64]Message{}}
	}
	if phase == Reply && (name == "basic.ack" || name == "basic.nack") && len(args) > 8 {
		event.Messages = c.answered(binary.BigEndian.Uint64(args), args[8]&1 == 1)
	}
	return event
}

// answered takes out the publishes of an ack or nack.
func (c *amqpChannel) answered(tag uint64, multiple bool) (all []Message) {
	for _, open := range slices.Sorted(maps.Keys(c.open)) {
		if open == tag || multiple && (open < tag || tag == 0) {
			all = append(all, c.open[open])
			delete(c.open, open)
		}
	}
	return all
}

func (c *amqpChannel) header(phase Phase, payload []byte) Event {
	m := Message{Key: keyOf(payload)}
	event := Event{Name: c.content[phase], Messages: []Message{m}}
	if event.Name == "basic.publish" {
		c.published++
		c.open[c.published] = m
	}
	return event
}

// keyOf reads app_id and message_id from a content header. The present properties come in a fixed order.
func keyOf(payload []byte) string {
	const fixed = 12 // class, weight, size of the body
	if len(payload) < fixed+2 {
		return ""
	}
	flags, rest := binary.BigEndian.Uint16(payload[fixed:]), payload[fixed+2:]
	var messageID, appID string
	for _, property := range properties {
		if flags&property.flag == 0 {
			continue
		}
		size := property.size(rest)
		if size > len(rest) {
			return ""
		}
		switch property.name {
		case "message_id":
			messageID = string(rest[1:size])
		case "app_id":
			appID = string(rest[1:size])
		}
		rest = rest[size:]
	}
	return appID + "/" + messageID
}

// properties are a message's properties in their order, with the flag and the length of each.
var properties = []struct {
	name string
	flag uint16
	size func([]byte) int
}{
	{"content_type", 1 << 15, short},
	{"content_encoding", 1 << 14, short},
	{"headers", 1 << 13, table},
	{"delivery_mode", 1 << 12, fixed(1)},
	{"priority", 1 << 11, fixed(1)},
	{"correlation_id", 1 << 10, short},
	{"reply_to", 1 << 9, short},
	{"expiration", 1 << 8, short},
	{"message_id", 1 << 7, short},
	{"timestamp", 1 << 6, fixed(8)},
	{"type", 1 << 5, short},
	{"user_id", 1 << 4, short},
	{"app_id", 1 << 3, short},
}

func short(rest []byte) int {
	if len(rest) < 1 {
		return 1
	}
	return 1 + int(rest[0])
}

func table(rest []byte) int {
	if len(rest) < 4 {
		return 4
	}
	return 4 + int(binary.BigEndian.Uint32(rest))
}

func fixed(n int) func([]byte) int { return func([]byte) int { return n } }
