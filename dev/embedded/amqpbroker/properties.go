package amqpbroker

import (
	"encoding/binary"
	"errors"
	"time"
)

// property is one of the fourteen properties of a message, in their order on the wire.
type property int

// The properties that this broker looks at.
const (
	propertyContentType property = 0
	propertyHeaders     property = 2
	propertyExpiration  property = 7
	propertyMessageID   property = 8
	propertyTimestamp   property = 9
	propertyAppID       property = 12
	propertyCount       property = 14
)

// propertySizes is the wire format of each property: 's' a short string, 't' a table, or a number of octets.
var propertySizes = [propertyCount]byte{'s', 's', 't', 1, 1, 's', 's', 's', 's', 8, 's', 's', 's', 's'}

var errBadProperties = errors.New("malformed properties")

// properties are a message's properties, each in wire format; nil means absent.
type properties [propertyCount][]byte

// parseProperties reads the part behind the body size in a header frame.
func parseProperties(b []byte) (p properties, err error) {
	d := &decoder{b: b}
	flags := d.u16()
	if flags&3 != 0 {
		return p, errBadProperties
	}
	for i := range p {
		if flags&(1<<(15-i)) == 0 {
			continue
		}
		rest := d.b
		switch kind := propertySizes[i]; kind {
		case 's':
			d.take(d.number(1))
		case 't':
			d.table()
		default:
			d.take(uint64(kind))
		}
		n := len(rest) - len(d.b)
		p[i] = rest[:n:n]
		if d.err != nil {
			return p, d.err
		}
	}
	if d.err == nil && len(d.b) > 0 {
		return p, errBadProperties
	}
	return p, d.err
}

// encode gives the properties as they stand in a header frame.
func (p properties) encode() []byte {
	b := make([]byte, 2, 64)
	var flags uint16
	for i, span := range p {
		if span != nil {
			flags |= 1 << (15 - i)
			b = append(b, span...)
		}
	}
	binary.BigEndian.PutUint16(b, flags)
	return b
}

// text gives a property that is a short string; ok is false when it is absent.
func (p properties) text(which property) (s string, ok bool) {
	if p[which] == nil {
		return "", false
	}
	return string(p[which][1:]), true
}

// time gives a property of whole seconds; zero when it is absent.
func (p properties) time(which property) time.Time {
	if p[which] == nil {
		return time.Time{}
	}
	seconds := binary.BigEndian.Uint64(p[which])
	return time.Unix(int64(seconds), 0)
}

// headers gives the headers table; nil when there is none.
func (p properties) headers() table {
	if p[propertyHeaders] == nil {
		return nil
	}
	t, err := parseTable(p[propertyHeaders][4:])
	if err != nil {
		return nil // parseProperties has checked the table
	}
	return t
}

// withHeaders gives the same properties with that headers table.
func (p properties) withHeaders(t table) properties {
	p[propertyHeaders] = t.encode()
	return p
}
