package redis

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"github.com/klauspost/compress/s2"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// packed is the first word of a record whose body is packed.
	packed = "pack"
	// worthPacking is the length from which packing a body may save memory in Redis.
	worthPacking = 128
)

// pack gives the record of a message with that line, and a packed body. The record is nil where packing saves less than
// an eighth of the body, because packing would cost more time than the memory is worth.
func pack(line []byte, digest string, body []byte) []byte {
	if len(body) < worthPacking {
		return nil
	}
	room := packRooms.Get().(*[]byte)
	defer packRooms.Put(room)
	*room = slices.Grow((*room)[:0], s2.MaxEncodedLen(len(body)))
	small := s2.Encode((*room)[:cap(*room)], body)
	if len(small) > len(body)-len(body)/8 {
		return nil
	}
	start := firstWords(packed, digest) + strconv.Itoa(len(body)) + " "
	record := make([]byte, 0, len(start)+len(line)+1+len(small))
	record = append(append(append(record, start...), line...), '\n')
	return append(record, small...)
}

// packRooms are buffers for packed bodies. A record of its own would take the size of the worst case.
var packRooms = sync.Pool{New: func() any { return new([]byte) }}

// unpack gives the body; its record's line states the size.
func unpack(small []byte, size int) ([]byte, error) {
	if size < 0 || size > halfmsg.MaxBody {
		return nil, fmt.Errorf("its body has %d bytes, where none has more than %d", size, halfmsg.MaxBody)
	}
	// The packed body states a size of its own. Without the check a few wrong bytes would ask for gigabytes.
	if n, err := s2.DecodedLen(small); err != nil || n != size {
		return nil, errors.Join(fmt.Errorf("its packed body has %d bytes, and its first line says %d", n, size), err)
	}
	body, err := s2.Decode(nil, small)
	if err != nil {
		return nil, fmt.Errorf("its packed body is damaged: %w", err)
	}
	return body, nil
}
