package amqpbroker

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// table is a field table in its order. Values stay as they came over the wire, so that unknown values still arrive
// unchanged.
type table []field

type field struct {
	name  string
	value value
}

// value is a value in wire format, its type octet first.
type value []byte

// Type octets of the values that this broker makes or looks into. RabbitMQ and its clients agree on these, the standard
// and its errata do not.
const (
	typeBool      = 't'
	typeInt64     = 'l'
	typeString    = 'S'
	typeTimestamp = 'T'
	typeTable     = 'F'
	typeArray     = 'A'
)

// valueSizes is how many octets values of a fixed size have.
var valueSizes = map[byte]uint64{
	typeBool: 1, 'b': 1, 'B': 1, 's': 2, 'u': 2, 'I': 4, 'i': 4, typeInt64: 8, 'L': 8,
	'f': 4, 'd': 8, 'D': 5, typeTimestamp: 8, 'V': 0,
}

var errBadType = errors.New("a field of an unknown type")

// takeValue takes one value of any type.
func (d *decoder) takeValue() value {
	rest := d.b
	kind := d.u8()
	switch size, fixed := valueSizes[kind]; {
	case fixed:
		d.take(size)
	case kind == typeString || kind == 'x' || kind == typeTable || kind == typeArray:
		d.take(d.number(4))
	case d.err == nil:
		d.err = fmt.Errorf("%w: %q", errBadType, kind)
	}
	if d.err != nil {
		return nil
	}
	n := len(rest) - len(d.b)
	return value(rest[:n:n])
}

// parseTable reads the inside of a field table, without its length.
func parseTable(b []byte) (table, error) {
	d := &decoder{b: b}
	var t table
	for len(d.b) > 0 {
		f := field{name: d.shortString(), value: d.takeValue()}
		if d.err != nil {
			return nil, d.err
		}
		t = append(t, f)
	}
	return t, nil
}

// encode gives the table with its length.
func (t table) encode() encoder {
	var e encoder
	for _, f := range t {
		e = append(e.shortString(f.name), f.value...)
	}
	return encoder(nil).longString(string(e))
}

// get gives the value of that name, or nil.
func (t table) get(name string) value {
	for _, f := range t {
		if f.name == name {
			return f.value
		}
	}
	return nil
}

// set returns the table with that value in place of an earlier value of the name, or at the end.
func (t table) set(name string, v value) table {
	changed := make(table, 0, len(t)+1)
	for _, f := range t {
		if f.name != name {
			changed = append(changed, f)
		}
	}
	return append(changed, field{name, v})
}

// stringOf gives the string of that name; ok is false when there is none.
func (t table) stringOf(name string) (s string, ok bool) {
	v := t.get(name)
	if len(v) < 5 || v[0] != typeString {
		return "", false
	}
	return string(v[5:]), true
}

// tableOf gives the table of that name, or nil.
func (t table) tableOf(name string) table {
	v := t.get(name)
	if len(v) < 5 || v[0] != typeTable {
		return nil
	}
	inner, err := parseTable(v[5:])
	if err != nil {
		return nil
	}
	return inner
}

// arrayOf gives the values of the array of that name, or nil.
func (t table) arrayOf(name string) []value {
	v := t.get(name)
	if len(v) < 5 || v[0] != typeArray {
		return nil
	}
	d := &decoder{b: v[5:]}
	var values []value
	for len(d.b) > 0 {
		item := d.takeValue()
		if d.err != nil {
			return nil
		}
		values = append(values, item)
	}
	return values
}

// plain returns a value as a Go value: int64, uint64, float64, bool, string or time.Time. Any other value becomes its
// type octet in quotes.
func (v value) plain() any {
	d := &decoder{b: v}
	switch kind := d.u8(); kind {
	case typeBool:
		return d.u8() != 0
	case typeString, 'x':
		return d.longString()
	case 'f':
		return float64(math.Float32frombits(d.u32()))
	case 'd':
		return math.Float64frombits(d.u64())
	case typeTimestamp:
		return time.Unix(int64(d.u64()), 0).UTC()
	default:
		if n, ok := v.integer(); ok {
			return n
		}
		return strconv.QuoteRune(rune(kind))
	}
}

// integer returns the number in a value; ok is false for other values.
func (v value) integer() (n int64, ok bool) {
	d := &decoder{b: v}
	switch d.u8() {
	case 'b':
		return int64(int8(d.u8())), true
	case 'B':
		return int64(d.u8()), true
	case 's':
		return int64(int16(d.u16())), true
	case 'u':
		return int64(d.u16()), true
	case 'I':
		return int64(int32(d.u32())), true
	case 'i':
		return int64(d.u32()), true
	case typeInt64, 'L':
		return int64(d.u64()), true
	}
	return 0, false
}

func boolValue(v bool) value      { return value(encoder{typeBool}.bit(v)) }
func intValue(n int64) value      { return value(encoder{typeInt64}.u64(uint64(n))) }
func stringValue(s string) value  { return value(encoder{typeString}.longString(s)) }
func timeValue(t time.Time) value { return value(encoder{typeTimestamp}.u64(uint64(t.Unix()))) }
func tableValue(t table) value    { return value(append(encoder{typeTable}, t.encode()...)) }
func arrayValue(values []value) value {
	var e encoder
	for _, v := range values {
		e = append(e, v...)
	}
	return value(encoder{typeArray}.longString(string(e)))
}
