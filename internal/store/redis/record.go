package redis

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/msghandler/msghandler/internal/halfmsg"
)

// A record is one readable line and then the body, byte for byte:
//
//	half CREATED_MS DIGEST {"exchange":"orders",...}\n
//
// Where packing helps, the first word is another, the unpacked size precedes the JSON, and the body behind the line is
// packed with S2:
//
//	pack CREATED_MS DIGEST SIZE {"exchange":"orders",...}\n
//
// Where the message names a broker, the broker begins the JSON: {"broker":"events","exchange":"orders",...}.
//
// The rest of an acknowledged message is such a line with nothing but the ordering key, the callback target and the
// marker store in its JSON, and no body:
//
//	acknowledged CREATED_MS DIGEST {"callback_target":"...","markers":"..."}\n
//
// The trace of a finished message is the line alone, without the JSON: done MS DIGEST.

// whole is the first word of a record with an unpacked body.
const whole = "half"

// packs says whether the body behind the first line is packed.
func (t *trace) packs() bool { return t.kind == packed }

// header is the JSON in a record's line.
type header struct {
	shared
	Headers map[string]string `json:"headers,omitempty"`
}

// shared is the part of the JSON that messages often have in common.
type shared struct {
	Broker       string `json:"broker,omitempty"` // first, for the scripts
	OrderingKey  string `json:"ordering_key,omitempty"`
	Exchange     string `json:"exchange"`
	RoutingKey   string `json:"routing_key"`
	ContentType  string `json:"content_type,omitempty"`
	DelayMS      int64  `json:"delay_ms,omitempty"`
	Target       string `json:"callback_target,omitempty"`
	MarkerStore  string `json:"markers,omitempty"`
	ConfirmAfter int64  `json:"confirm_after_ms,omitempty"`
	Trace        string `json:"traceparent,omitempty"`
	Replayed     bool   `json:"replayed,omitempty"`
	// EarlierCopies is how many copies may have been published before the store had the message.
	EarlierCopies int `json:"earlier_copies,omitempty"`
}

// encoder encodes the messages of a batch. Messages that follow each other often differ only in their ids and
// bodies, and then have the same JSON.
type encoder struct {
	last shared
	line []byte // the JSON of last without headers; nil before the first
}

// unstamped stands in a record in place of the time until Redis fills in the time.
const unstamped = "0000000000000"

// lineOf gives the JSON of a message's line.
func (e *encoder) lineOf(m *halfmsg.Message) ([]byte, error) {
	h := header{Headers: m.Headers, shared: shared{
		Broker: m.Broker, OrderingKey: m.OrderingKey,
		Exchange: m.Exchange, RoutingKey: m.RoutingKey, ContentType: m.ContentType,
		DelayMS: m.Delay.Milliseconds(), Target: m.CallbackTarget, ConfirmAfter: m.ConfirmAfter.Milliseconds(),
		MarkerStore: m.MarkerStore, Trace: m.Trace, Replayed: m.Replayed, EarlierCopies: m.EarlierCopies,
	}}
	if len(h.Headers) > 0 {
		return json.Marshal(h)
	}
	if e.line != nil && h.shared == e.last {
		return e.line, nil
	}
	var err error
	e.last = h.shared
	e.line, err = json.Marshal(h)
	return e.line, err
}

// encode gives the record of a message with that digest, without the time.
func (e *encoder) encode(m *halfmsg.Message, digest string) ([]byte, error) {
	line, err := e.lineOf(m)
	if err != nil {
		return nil, err
	}
	if record := pack(line, digest, m.Body); record != nil {
		return record, nil
	}
	start := firstWords(whole, digest)
	record := make([]byte, 0, len(start)+len(line)+1+len(m.Body))
	record = append(append(append(record, start...), line...), '\n')
	return append(record, m.Body...), nil
}

func firstWords(kind, digest string) string { return kind + " " + unstamped + " " + digest + " " }

// trace is a record's first words.
type trace struct {
	kind string
	at   time.Time
	// digest is the fingerprint of the content.
	digest string
	// size is the unpacked size of a packed body.
	size int
	rest []byte // the text behind the digest and the size
}

// decodeTrace reads the first words of a record.
func decodeTrace(record []byte) (trace, error) {
	line := record
	if end := bytes.IndexByte(record, '\n'); end >= 0 {
		line = record[:end]
	}
	kind, line, _ := bytes.Cut(line, []byte{' '})
	stamp, line, _ := bytes.Cut(line, []byte{' '})
	ms, err := strconv.ParseInt(string(stamp), 10, 64)
	if err != nil {
		return trace{}, fmt.Errorf("its first line is not one of ours: %w", err)
	}
	digest, rest, _ := bytes.Cut(line, []byte{' '})
	return trace{kind: string(kind), at: time.UnixMilli(ms), digest: string(digest), rest: rest}, nil
}

// maxMS is the longest time in milliseconds that a time.Duration holds. A longer time would overflow.
const maxMS = int64(math.MaxInt64 / time.Millisecond)

// decode fills in the fields of a living record in that state and returns the first words. The body shares the memory
// of record, unless the body was packed.
func decode(record []byte, state halfmsg.State, into *halfmsg.Message) (trace, error) {
	t, err := decodeLine(record, state, into)
	if err != nil {
		return trace{}, err
	}
	_, into.Body, _ = bytes.Cut(record, []byte{'\n'})
	if t.packs() {
		if into.Body, err = unpack(into.Body, t.size); err != nil {
			return trace{}, err
		}
	}
	return t, nil
}

// decodeLine fills in the fields of the first line, which are all but the body.
func decodeLine(record []byte, state halfmsg.State, into *halfmsg.Message) (trace, error) {
	t, err := decodeTrace(record)
	if err != nil {
		return trace{}, err
	}
	stripped := state == halfmsg.Acknowledged && t.kind == halfmsg.Acknowledged.String()
	if t.kind != whole && !t.packs() && !stripped {
		return trace{}, fmt.Errorf("its first word is neither %s nor %s", whole, packed)
	}
	if t.packs() {
		size, rest, _ := bytes.Cut(t.rest, []byte{' '})
		if t.size, err = strconv.Atoi(string(size)); err != nil {
			return trace{}, fmt.Errorf("its first line does not say how long its body is: %w", err)
		}
		t.rest = rest
	}
	var h header
	if err := json.Unmarshal(t.rest, &h); err != nil {
		return trace{}, fmt.Errorf("its header is not JSON: %w", err)
	}
	if bytes.IndexByte(record, '\n') < 0 {
		return trace{}, fmt.Errorf("its first line has no end")
	}
	if h.DelayMS < 0 || h.DelayMS > maxMS || h.ConfirmAfter < 0 || h.ConfirmAfter > maxMS {
		return trace{}, fmt.Errorf("its header holds a time out of range: delay %d ms, confirmed after %d ms",
			h.DelayMS, h.ConfirmAfter)
	}
	into.Broker, into.OrderingKey = h.Broker, h.OrderingKey
	into.Exchange, into.RoutingKey, into.ContentType, into.Headers = h.Exchange, h.RoutingKey, h.ContentType, h.Headers
	into.Delay = time.Duration(h.DelayMS) * time.Millisecond
	into.ConfirmAfter = time.Duration(h.ConfirmAfter) * time.Millisecond
	into.CallbackTarget, into.MarkerStore = h.Target, h.MarkerStore
	into.Trace, into.Replayed = h.Trace, h.Replayed
	into.EarlierCopies = h.EarlierCopies
	return t, nil
}
