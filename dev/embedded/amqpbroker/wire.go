package amqpbroker

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
)

// The kinds of frames, and the octet that ends each.
const (
	frameMethod    = 1
	frameHeader    = 2
	frameBody      = 3
	frameHeartbeat = 8
	frameEnd       = 0xCE
	// frameOverhead is what a frame has besides its payload: kind, channel, size and end.
	frameOverhead = 8
)

// protocolHeader is the first message of a client, and the answer to any other first message.
const protocolHeader = "AMQP\x00\x00\x09\x01"

// frame is a frame as read. The payload belongs to the receiver.
type frame struct {
	kind    byte
	channel uint16
	payload []byte
}

// readFrame reads one frame whose size with all its overhead is at most limit octets. A malformed frame is an
// *exception of the connection; every other error is the reader's.
func readFrame(r *bufio.Reader, limit uint32) (frame, error) {
	var head [7]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(head[3:])
	if uint64(size)+frameOverhead > uint64(limit) {
		return frame{}, connectionError(codeFrameError, "type %d, size %d: frame_too_large", head[0], size)
	}
	payload := make([]byte, size+1)
	if _, err := io.ReadFull(r, payload); err != nil {
		return frame{}, err
	}
	if payload[size] != frameEnd {
		return frame{}, connectionError(codeFrameError, "type %d: bad_payload_end %d", head[0], payload[size])
	}
	return frame{kind: head[0], channel: binary.BigEndian.Uint16(head[1:]), payload: payload[:size:size]}, nil
}

// appendFrame appends one frame with that payload.
func appendFrame(b []byte, kind byte, channel uint16, payload []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint16(b, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	b = append(b, payload...)
	return append(b, frameEnd)
}

// appendMethod appends one method frame.
func appendMethod(b []byte, channel uint16, id methodID, arguments encoder) []byte {
	b = append(b, frameMethod)
	b = binary.BigEndian.AppendUint16(b, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(4+len(arguments)))
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	b = append(b, arguments...)
	return append(b, frameEnd)
}

// appendContent appends the header frame of a message and the body frames, each of at most limit octets.
func appendContent(b []byte, channel uint16, properties, body []byte, limit uint32) []byte {
	b = append(b, frameHeader)
	b = binary.BigEndian.AppendUint16(b, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(12+len(properties)))
	b = binary.BigEndian.AppendUint32(b, classBasic<<16)
	b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	b = append(b, properties...)
	b = append(b, frameEnd)
	for len(body) > 0 {
		n := min(len(body), int(limit-frameOverhead))
		b = appendFrame(b, frameBody, channel, body[:n])
		body = body[n:]
	}
	return b
}

// encoder builds the arguments of a method.
type encoder []byte

func (e encoder) u8(v byte) encoder    { return append(e, v) }
func (e encoder) u16(v uint16) encoder { return binary.BigEndian.AppendUint16(e, v) }
func (e encoder) u32(v uint32) encoder { return binary.BigEndian.AppendUint32(e, v) }
func (e encoder) u64(v uint64) encoder { return binary.BigEndian.AppendUint64(e, v) }

// bit is one octet with one flag.
func (e encoder) bit(v bool) encoder {
	if v {
		return append(e, 1)
	}
	return append(e, 0)
}

// shortString is cut at 255 octets, the most that fits.
func (e encoder) shortString(s string) encoder {
	s = s[:min(len(s), 255)]
	return append(append(e, byte(len(s))), s...)
}

func (e encoder) longString(s string) encoder {
	return append(e.u32(uint32(len(s))), s...)
}

// decoder takes arguments from a method. The first missing argument sets err, and from then on all arguments are zero.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) take(n uint64) []byte {
	if d.err == nil && n > uint64(len(d.b)) {
		d.err = fmt.Errorf("%d octets wanted, %d left", n, len(d.b))
	}
	if d.err != nil {
		d.b = nil
		return nil
	}
	taken := d.b[:n:n]
	d.b = d.b[n:]
	return taken
}

// number takes an unsigned number of that many octets.
func (d *decoder) number(octets uint64) uint64 {
	var v uint64
	for _, o := range d.take(octets) {
		v = v<<8 | uint64(o)
	}
	return v
}

func (d *decoder) u8() byte            { return byte(d.number(1)) }
func (d *decoder) u16() uint16         { return uint16(d.number(2)) }
func (d *decoder) u32() uint32         { return uint32(d.number(4)) }
func (d *decoder) u64() uint64         { return d.number(8) }
func (d *decoder) shortString() string { return string(d.take(d.number(1))) }
func (d *decoder) longString() string  { return string(d.take(d.number(4))) }

// table takes a field table.
func (d *decoder) table() table {
	t, err := parseTable(d.take(d.number(4)))
	if d.err == nil {
		d.err = err
	}
	return t
}
