package server

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

const (
	frameHeaderLen = 9
	// noFrame is the kind of what is no frame: the preface of HTTP/2.
	noFrame http2.FrameType = 0xff
)

// frames finds the frames in what comes by an HTTP/2 connection, in pieces of any size. gRPC shows nobody how long a
// request is until it has received the whole of it.
type frames struct {
	header [frameHeaderLen]byte
	have   int
	kind   http2.FrameType
	// stream is that of the frame that began last.
	stream uint32
	// left is how much of the frame has still to come; data is how much of that is data, and not padding.
	left, data int
	// padded says that the next byte tells how much of the frame is padding.
	padded bool
	// ends says that the stream has no more frames than this one.
	ends bool
}

func newFrames() frames { return frames{kind: noFrame, left: len(http2.ClientPreface)} }

// scan calls see with each piece of data of a stream, and with nothing at the end of the last, until it returns false.
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

// begin takes the header of a frame.
func (f *frames) begin() {
	f.have = 0
	f.left = int(f.header[0])<<16 | int(f.header[1])<<8 | int(f.header[2])
	f.kind = http2.FrameType(f.header[3])
	f.stream = binary.BigEndian.Uint32(f.header[5:]) &^ (1 << 31)
	f.data = f.left
	if f.kind != http2.FrameContinuation { // which goes on with headers that may have ended the stream
		f.ends = (f.kind == http2.FrameData || f.kind == http2.FrameHeaders) && http2.Flags(f.header[4]).Has(http2.FlagDataEndStream)
	}
	f.padded = f.kind == http2.FrameData && f.left > 0 && http2.Flags(f.header[4]).Has(http2.FlagDataPadded)
}

// end tells of the end of a frame, where it is that of the stream's data.
func (f *frames) end(see func(stream uint32, data []byte) bool) bool {
	return f.kind != http2.FrameData || !f.ends || see(f.stream, nil)
}
