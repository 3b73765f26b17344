package server

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A page token holds the store's cursor and a checksum over it and the listing that it belongs to, so a damaged token,
// or one of another listing, is refused rather than taken for some other place in the list. An age cuts off the end of
// a list and moves no place in it, so a token is good with any.

// maxToken is far above any cursor of a store.
const maxToken = 4096

func writeToken(cursor string, query halfmsg.Query) string {
	if cursor == "" {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString(append(tokenSum(cursor, query), cursor...))
}

func readToken(token string, query halfmsg.Query) (cursor string, ok bool) {
	if token == "" {
		return "", true
	}
	if len(token) > maxToken {
		return "", false
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil || len(raw) <= crc32.Size {
		return "", false
	}
	// The token is written again rather than its sum compared: base64 lets line ends and odd last bits pass.
	cursor = string(raw[crc32.Size:])
	return cursor, writeToken(cursor, query) == token
}

func tokenSum(cursor string, query halfmsg.Query) []byte {
	listing := []string{query.State.String(), query.Producer, cursor}
	if query.Filters() {
		listing = append(listing, query.Exchange, query.Error)
	}
	sum := crc32.ChecksumIEEE([]byte(strings.Join(listing, "\x00")))
	return binary.BigEndian.AppendUint32(nil, sum)
}
