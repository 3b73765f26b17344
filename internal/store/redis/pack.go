package redis

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/klauspost/compress/s2"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

const (
	// packed is the first word of a record whose body is packed.
	packed = "pack"
	// worthPacking is how long a body is of which packing may save some of Redis's memory.
	worthPacking = 128
)

// pack gives the record of a message whose line is that, with its body packed. It is nil where that saves less than an
// eighth of the body: then it would cost more time than it is worth.
func pack(line []byte, digest string, body []byte) []byte {
	if len(body) < worthPacking {
		return nil
	}
	start := firstWords(packed, digest) + strconv.Itoa(len(body)) + " "
	record := make([]byte, 0, len(start)+len(line)+1+s2.MaxEncodedLen(len(body)))
	record = append(append(append(record, start...), line...), '\n')
	small := s2.Encode(record[len(record):cap(record)], body) // it has the room, so it stands behind the line
	if len(small) > len(body)-len(body)/8 {
		return nil
	}
	return record[:len(record)+len(small)]
}

// unpack gives the body of which a record's line says that it has that size.
func unpack(small []byte, size int) ([]byte, error) {
	if size < 0 || size > halfmsg.MaxBody {
		return nil, fmt.Errorf("its body has %d bytes, where none has more than %d", size, halfmsg.MaxBody)
	}
	// What it says of itself is looked at first, or a few wrong bytes would ask for gigabytes.
	if n, err := s2.DecodedLen(small); err != nil || n != size {
		return nil, errors.Join(fmt.Errorf("its packed body has %d bytes, and its first line says %d", n, size), err)
	}
	body, err := s2.Decode(nil, small)
	if err != nil {
		return nil, fmt.Errorf("its packed body is damaged: %w", err)
	}
	return body, nil
}
