package server

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A page token holds the store's cursor and a checksum over the cursor and its listing. So a damaged token, or a
// token of another listing, is refused, and never leads to a wrong place in the list. An age cuts off the end of a
// list and moves no place, so a token is valid with any age.

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
	// Comparing sums is not enough: base64 ignores line ends and odd last bits. So the whole token is written again.
	cursor = string(raw[crc32.Size:])
	return cursor, writeToken(cursor, query) == token
}

func tokenSum(cursor string, query halfmsg.Query) []byte {
	listing := []string{query.State.String(), query.Producer, cursor}
	if query.Filters() {
		listing = append(listing, query.Exchange, query.Error)
	}
	if query.Broker != "" {
		listing = append(listing, query.Broker)
	}
	if query.Searches() {
		listing = append(listing, "", query.Cause, query.IDPrefix, query.RoutingKey, query.HeaderName, query.HeaderValue)
	}
	sum := crc32.ChecksumIEEE([]byte(strings.Join(listing, "\x00")))
	return binary.BigEndian.AppendUint32(nil, sum)
}
