package kafkaconn

import (
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// requests follows the produce requests of one client. The client reports only the last error of a record, and fails
// records whose request is under way. So the requests and answers are read from the connections.
type requests struct {
	mu    sync.Mutex
	parts map[part]traffic
}

// part is a partition, or a whole topic.
type part struct {
	topic     string
	partition int32
}

// whole is the topic as a part.
func whole(topic string) part { return part{topic: topic, partition: -1} }

// traffic counts produce requests with records for one part.
type traffic struct {
	// begun counts requests of which a byte may have been written, and doubtful those that may have stored their records
	// although no answer says so: the connection has ended, or the answer leaves it open.
	begun, doubtful int64
	// open is how many requests have no answer yet.
	open int
}

// of is the traffic to a part until now.
func (r *requests) of(p part) traffic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.parts[p]
}

// change changes the counts of parts.
func (r *requests) change(parts []part, change func(*traffic)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.parts == nil {
		r.parts = make(map[part]traffic)
	}
	for _, p := range parts {
		t := r.parts[p]
		change(&t)
		r.parts[p] = t
	}
}

// watched wraps a connection so that its produce requests are counted.
func (r *requests) watched(conn net.Conn) net.Conn {
	return &watchedConn{Conn: conn, requests: r, open: make(map[int32]openRequest)}
}

// watchedConn is a connection to a broker. The client has a connection of its own for produce requests.
type watchedConn struct {
	net.Conn
	requests *requests

	mu sync.Mutex
	// open has the produce requests without an answer, by their correlation ids.
	open map[int32]openRequest
	// producing: a produce request was written here. Earlier answers, as to a login, need not be in the form of frames.
	producing bool
	// partial is the beginning of an answer.
	partial []byte
}

type openRequest struct {
	version int16
	parts   []part
}

// maxProduceVersion is the last version of produce requests that names topics. Later versions have ids of topics.
const maxProduceVersion = 12

const (
	// requestHead is the size of the beginning of each request: size, key, version, correlation id, size of the name.
	requestHead = 14
	// answerHead is the size of the beginning of each answer: the correlation id.
	answerHead = 4
)

// Write implements net.Conn. The client writes each request with one call. A produce request counts before its first
// byte is written.
func (c *watchedConn) Write(b []byte) (int, error) {
	if len(b) >= requestHead && int16At(b[4:]) == int16(kmsg.Produce) {
		if err := c.begin(b); err != nil {
			return 0, err
		}
	}
	return c.Conn.Write(b)
}

// begin counts a produce request.
func (c *watchedConn) begin(b []byte) error {
	produce := kmsg.NewPtrProduceRequest()
	produce.Version = int16At(b[6:])
	body := b[min(requestHead+max(int(int16At(b[12:])), 0), len(b)):]
	if produce.IsFlexible() && len(body) > 0 {
		body = body[1:] // the client sends no tags
	}
	if err := produce.ReadFrom(body); err != nil || produce.Version > maxProduceVersion {
		return errors.Join(errors.New("a produce request of the client is not understood, and not sent"), err)
	}
	var parts []part
	for i := range produce.Topics {
		topic := &produce.Topics[i]
		parts = append(parts, whole(topic.Topic))
		for _, p := range topic.Partitions {
			parts = append(parts, part{topic: topic.Topic, partition: p.Partition})
		}
	}
	c.requests.change(parts, func(t *traffic) {
		t.begun++
		t.open++
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.producing = true
	c.open[int32At(b[8:])] = openRequest{version: produce.Version, parts: parts}
	return nil
}

func int16At(b []byte) int16 { return int16(binary.BigEndian.Uint16(b)) } //nolint:gosec // the same bits
func int32At(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) } //nolint:gosec // the same bits

// Read implements net.Conn.
func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.producing {
		return n, err
	}
	c.partial = append(c.partial, b[:n]...)
	for len(c.partial) >= 4 {
		size := int(binary.BigEndian.Uint32(c.partial))
		if len(c.partial) < 4+size {
			break
		}
		c.answered(c.partial[4 : 4+size])
		c.partial = c.partial[4+size:]
	}
	return n, err
}

// answered takes a complete answer; c.mu is held.
func (c *watchedConn) answered(b []byte) {
	if len(b) < answerHead {
		return
	}
	id := int32At(b)
	request, produced := c.open[id]
	if !produced {
		return
	}
	delete(c.open, id)
	c.requests.change(request.parts, func(t *traffic) { t.open-- })
	c.requests.change(doubtful(request, b[answerHead:]), func(t *traffic) { t.doubtful++ })
}

// doubtful are the parts for which the answer to a request leaves open whether the records are stored.
func doubtful(request openRequest, body []byte) (parts []part) {
	answer := kmsg.NewPtrProduceResponse()
	answer.Version = request.version
	if answer.IsFlexible() && len(body) > 0 {
		body = body[1:] // brokers send no tags in the head
	}
	if answer.ReadFrom(body) != nil {
		return request.parts
	}
	for i := range answer.Topics {
		topic := &answer.Topics[i]
		if slices.ContainsFunc(topic.Partitions, func(p kmsg.ProduceResponseTopicPartition) bool {
			return isUnsure(kerr.ErrorForCode(p.ErrorCode))
		}) {
			parts = append(parts, whole(topic.Topic))
		}
	}
	return parts
}

// Close implements net.Conn. The open requests get no answer any more.
func (c *watchedConn) Close() error {
	c.mu.Lock()
	for request := range maps.Values(c.open) {
		c.requests.change(request.parts, func(t *traffic) {
			t.open--
			t.doubtful++
		})
	}
	clear(c.open)
	c.mu.Unlock()
	return c.Conn.Close()
}
