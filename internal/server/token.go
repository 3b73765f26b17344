package server

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"strings"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A page token holds the store's cursor and a checksum over the cursor and its listing. So a damaged token, or a
// token of another listing, is refused, and never leads to a wrong place in the list. An age cuts off the end of a
// list and moves no place, so a token is valid with any age.

// maxToken is far above any cursor of a store.
const maxToken = 4096

// listing is what a page token belongs to.
type listing interface {
	// parts are texts that tell the listing, and the place of a cursor in it, from others.
	parts(cursor string) []string
}

func writeToken(cursor string, of listing) string {
	if cursor == "" {
		return ""
	}
	sum := crc32.ChecksumIEEE([]byte(strings.Join(of.parts(cursor), "\x00")))
	return base64.RawURLEncoding.EncodeToString(append(binary.BigEndian.AppendUint32(nil, sum), cursor...))
}

func readToken(token string, of listing) (cursor string, ok bool) {
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
	return cursor, writeToken(cursor, of) == token
}

// unfinished is a listing of messages in a state.
type unfinished halfmsg.Query

func (u unfinished) parts(cursor string) []string {
	query := halfmsg.Query(u)
	parts := []string{query.State.String(), query.Producer, cursor}
	if query.Filters() {
		parts = append(parts, query.Exchange, query.Error)
	}
	if query.Broker != "" {
		parts = append(parts, query.Broker)
	}
	if query.Searches() {
		parts = append(parts, "", query.Cause, query.IDPrefix, query.RoutingKey, query.HeaderName, query.HeaderValue)
	}
	return parts
}

// history is a listing of finished messages.
type history halfmsg.FinishedQuery

func (h history) parts(cursor string) []string {
	return []string{
		cursor, h.Producer, h.ID, string(h.Ended), h.Exchange, h.RoutingKey, h.HeaderName, h.HeaderValue,
		strconv.FormatBool(h.Receipts),
	}
}

// cursor reads the page token of a request.
func (c *check) cursor(token string, of listing) string {
	cursor, ok := readToken(token, of)
	if !ok {
		c.fail("page_token", "is not one that this listing has given")
	}
	return cursor
}
