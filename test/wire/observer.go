package wire

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ScriptCall is a call of one of the store's scripts with its reply. Of a joined call, each part is a ScriptCall.
type ScriptCall struct {
	// Script is the name of the file without .lua, and Args is ARGV.
	Script string
	Args   []string
	// Reply has integers, texts and lists; nil when Redis answered with an error.
	Reply []any
	// Called and Answered are moments: numbers that grow by all calls and replies of an Observer. At is when the reply was
	// written, by the server's clock.
	Called, Answered int64
	At               time.Time
}

// Observer sees the calls of scripts at the server's side of connections: a call has its effect also where its reply is
// lost.
type Observer struct {
	scripts *scripts
	moments atomic.Int64
	now     func() time.Time
	see     func(ScriptCall)
}

// NewObserver has a function called with each call of a script, concurrently and before the client has the reply. now
// is the server's clock.
func NewObserver(now func() time.Time, see func(ScriptCall)) (*Observer, error) {
	s, err := readScripts()
	return &Observer{scripts: s, now: now, see: see}, err
}

// Conn is the server's side of a connection, observed.
func (o *Observer) Conn(server net.Conn) net.Conn { return &observed{Conn: server, observer: o} }

type observed struct {
	net.Conn
	observer *Observer

	mu       sync.Mutex
	requests valueBuffer
	replies  valueBuffer
	waiting  []waitingCall
	// gone says that the client got no more replies.
	gone atomic.Bool
}

// waitingCall is a request without its reply.
type waitingCall struct {
	parts  []part
	called int64
}

// Read implements net.Conn.
func (c *observed) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	called := c.observer.moments.Add(1)
	c.requests.add(b[:n], func(value any, _ bool) {
		items, _ := value.([]any)
		args := make([]string, len(items))
		for i := range items {
			args[i], _ = items[i].(string)
		}
		call := waitingCall{called: called}
		if len(args) > 0 {
			call.parts, _ = c.observer.scripts.parts(args)
		}
		c.waiting = append(c.waiting, call)
	})
	return n, err
}

// Write implements net.Conn. A connection of Pub/Sub has more replies than requests. A client that is gone is no error:
// the server still runs the calls that it has read, and after an error it would not write what they did.
func (c *observed) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.replies.add(b, func(value any, failed bool) {
		if len(c.waiting) == 0 {
			return
		}
		call := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.observer.answered(call, value, failed)
	})
	c.mu.Unlock()
	if c.gone.Load() {
		return len(b), nil
	}
	if _, err := c.Conn.Write(b); err != nil {
		c.gone.Store(true)
	}
	return len(b), nil
}

// answered hands the parts of a call over.
func (o *Observer) answered(call waitingCall, value any, failed bool) {
	for i, p := range call.parts {
		of := value
		if p.joined {
			of = replyOf(Event{joined: true}, i, value)
		}
		reply, _ := of.([]any)
		if failed {
			reply = nil
		}
		o.see(ScriptCall{
			Script: p.script, Args: p.args, Reply: reply, Called: call.called, Answered: o.moments.Add(1), At: o.now(),
		})
	}
}

// valueBuffer gathers bytes until they are whole values.
type valueBuffer struct {
	rest   []byte
	from   bytes.Reader
	reader respReader
}

// add calls found for each whole value; failed reports an error in its place.
func (v *valueBuffer) add(b []byte, found func(value any, failed bool)) {
	v.rest = append(v.rest, b...)
	if v.reader.from == nil {
		v.reader.from = bufio.NewReader(&v.from)
	}
	for len(v.rest) > 0 {
		v.from.Reset(v.rest)
		v.reader.from.Reset(&v.from)
		v.reader.raw.Reset()
		value, err := v.reader.value()
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
		failed := v.rest[0] == '-'
		v.rest = v.rest[max(1, v.reader.raw.Len()):]
		found(value, failed || err != nil)
	}
	v.rest = nil
}
