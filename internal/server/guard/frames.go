package guard

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const (
	frameHeaderLen = 9
	// noFrame is the kind of the preface of HTTP/2.
	noFrame http2.FrameType = 0xff
	// prefixLen is the length of a message's prefix: one byte of flags and four of length.
	prefixLen = 5
)

// frames finds the frames in the bytes of an HTTP/2 connection, in pieces of any size. gRPC does not
// say how long a request is until gRPC has received the whole request.
type frames struct {
	header [frameHeaderLen]byte
	have   int
	kind   http2.FrameType
	// stream is the stream of the frame that began last.
	stream uint32
	// left is how much of the frame has still to come; data is how much of left is data, and not padding.
	left, data int
	// padded says that the next byte is the length of the frame's padding.
	padded bool
	// ends says that the stream has no more frames than this one.
	ends bool
}

func newFrames() frames { return frames{kind: noFrame, left: len(http2.ClientPreface)} }

// scan calls see with each piece of data of a stream, and with no data at the end of the last piece, until see returns
// false.
func (f *frames) scan(piece []byte, see func(stream uint32, data []byte) bool) bool {
	for len(piece) > 0 {
		if f.left == 0 {
			n := copy(f.header[f.have:], piece)
			piece = piece[n:]
			if f.have += n; f.have == frameHeaderLen {
				if f.begin(); f.left == 0 && !f.end(see) {
					return false
				}
			}
			continue
		}
		if f.padded {
			f.padded = false
			f.left--
			f.data = max(0, f.left-int(piece[0]))
			if piece = piece[1:]; f.left == 0 && !f.end(see) {
				return false
			}
			continue
		}
		n := min(len(piece), f.left)
		if f.kind == http2.FrameData {
			data := piece[:min(n, f.data)]
			f.data -= len(data)
			if len(data) > 0 && !see(f.stream, data) {
				return false
			}
		}
		piece = piece[n:]
		if f.left -= n; f.left == 0 && !f.end(see) {
			return false
		}
	}
	return true
}

// begin reads the header of a frame.
func (f *frames) begin() {
	f.have = 0
	f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
	f.kind = http2.FrameType(f.header[3])
	f.stream = binary.BigEndian.Uint32(f.header[5:]) &^ (1 << 31)
	f.data = f.left
	flags := http2.Flags(f.header[4])
	if f.kind != http2.FrameContinuation { // a continuation goes on with headers that may have ended the stream
		f.ends = (f.kind == http2.FrameData || f.kind == http2.FrameHeaders) && flags.Has(http2.FlagDataEndStream)
	}
	f.padded = f.kind == http2.FrameData && f.left > 0 && flags.Has(http2.FlagDataPadded)
}

// end calls see at the end of a frame that ends the stream's data.
func (f *frames) end(see func(stream uint32, data []byte) bool) bool {
	return f.kind != http2.FrameData || !f.ends || see(f.stream, nil)
}

// messages finds the gRPC messages in the data of one stream, in pieces of any size.
type messages struct {
	prefix [prefixLen]byte
	have   int
	// left is how much of the current message has still to come.
	left int64
}

// next finds the next message that begins in data, and returns its length and the data that follows its prefix.
// begins is false where data holds no complete prefix.
func (m *messages) next(data []byte) (length int64, rest []byte, begins bool) {
	skipped := min(m.left, int64(len(data)))
	m.left -= skipped
	data = data[skipped:]
	n := copy(m.prefix[m.have:], data)
	if m.have += n; m.have < prefixLen {
		return 0, nil, false
	}
	m.have = 0
	m.left = int64(binary.BigEndian.Uint32(m.prefix[1:]))
	return m.left, data[n:], true
}

// inside reports whether a message has begun and is not complete.
func (m *messages) inside() bool { return m.have > 0 || m.left > 0 }
