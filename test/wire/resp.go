package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// respTap reads RESP 2. A server answers in the order of the requests.
type respTap struct {
	scripts *scripts
	mu      sync.Mutex
	asked   [][]Event
}

func (x *respTap) next(phase Phase, from *bufio.Reader) ([]byte, []Event, error) {
	r := &respReader{from: from}
	value, err := r.value()
	if err != nil {
		return nil, nil, err
	}
	if phase == Request {
		events, err := x.request(value)
		return r.raw.Bytes(), events, err
	}
	return r.raw.Bytes(), x.reply(value), nil
}

func (x *respTap) request(value any) ([]Event, error) {
	parts, _ := value.([]any)
	args := make([]string, len(parts))
	for i, part := range parts {
		args[i], _ = part.(string)
	}
	events, err := x.scripts.command(args)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.asked = append(x.asked, events)
	return events, err
}

// reply returns the events of the request that has waited longest. Only the reply names the claimed messages.
func (x *respTap) reply(value any) []Event {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.asked) == 0 {
		return nil
	}
	asked := x.asked[0]
	x.asked = x.asked[1:]
	events := make([]Event, len(asked))
	for i, event := range asked {
		events[i] = answered(event, replyOf(event, i, value))
	}
	return events
}

// replyOf is what a reply says of one part of its request.
func replyOf(event Event, part int, value any) any {
	if !event.joined {
		return value
	}
	replies, _ := value.([]any)
	if part >= len(replies) {
		return nil // an error
	}
	return replies[part]
}

// answered is the event after its reply.
func answered(event Event, reply any) Event {
	event.Phase = Reply
	switch event.script {
	case "claim", "submit", "trust":
		event.Messages = claimed(event.Messages, reply)
	case "create_paged", "submit_paged", "settle_paged":
		event.Messages = done(event, reply)
	}
	return event
}

// respReader reads one value and keeps its bytes.
type respReader struct {
	from *bufio.Reader
	raw  bytes.Buffer
}

// value reads a string, a number, an array of values, or nil. Errors are strings.
func (r *respReader) value() (any, error) {
	line, err := r.from.ReadString('\n')
	if err != nil {
		return nil, err
	}
	r.raw.WriteString(line)
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, &strangeError{"an empty line"}
	}
	rest := line[1:]
	switch line[0] {
	case '+', '-':
		return rest, nil
	case ':':
		return strconv.ParseInt(rest, 10, 64)
	case '$':
		return r.bulk(rest)
	case '*':
		return r.array(rest)
	}
	return nil, &strangeError{fmt.Sprintf("%.40q", line)}
}

func (r *respReader) bulk(length string) (any, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return nil, err
	}
	begin := r.raw.Len()
	if _, err := io.CopyN(&r.raw, r.from, int64(n)+2); err != nil {
		return nil, err
	}
	return string(r.raw.Bytes()[begin : begin+n]), nil
}

func (r *respReader) array(length string) (any, error) {
	n, err := strconv.Atoi(length)
	if err != nil || n < 0 {
		return nil, err
	}
	all := make([]any, n)
	for i := range all {
		if all[i], err = r.value(); err != nil {
			return nil, err
		}
	}
	return all, nil
}
