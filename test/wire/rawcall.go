package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// RawConn is a gRPC client connection that works frame by frame, so that a test can send bytes that no gRPC client
// would send: half of a request, an encoding of its own, a prefix that announces more than follows. RawConn obeys
// flow control and is safe for concurrent use.
type RawConn struct {
	conn    net.Conn
	framer  *http2.Framer
	writing sync.Mutex

	mu      sync.Mutex
	changed *sync.Cond
	next    uint32
	// initial is the initial window of each new stream; window is the window of the connection.
	initial, window int64
	streams         map[uint32]*rawStream
	err             error
	ended           chan struct{}
}

// rawStream is one call.
type rawStream struct {
	window int64
	answer *RawAnswer
}

// RawAnswer is how a call ended.
type RawAnswer struct {
	// Status is the number of the gRPC code, and empty where the stream was reset without one.
	Status  string
	Message string
}

// ErrAnswered says that a call was answered before the whole request was sent.
var ErrAnswered = errors.New("wire: the call has been answered")

// DialRaw connects without TLS.
func DialRaw(addr string) (*RawConn, error) { return DialRawFrom(net.Dialer{}, addr) }

// DialRawFrom connects without TLS, as a dialer does.
func DialRawFrom(dialer net.Dialer, addr string) (*RawConn, error) {
	conn, err := dialer.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &RawConn{
		conn: conn, framer: http2.NewFramer(conn, conn), next: 1, initial: 65535, window: 65535,
		streams: map[uint32]*rawStream{}, ended: make(chan struct{}),
	}
	c.changed = sync.NewCond(&c.mu)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := c.framer.WriteSettings(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	go c.read()
	return c, nil
}

// Close closes the connection.
func (c *RawConn) Close() {
	_ = c.conn.Close()
	<-c.ended
}

// Begin begins a call of a method, written as /package.Service/Method, with further headers as name and value in turn.
func (c *RawConn) Begin(method string, headers ...string) (stream uint32, err error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	stream, c.next = c.next, c.next+2
	c.streams[stream] = &rawStream{window: c.initial}
	c.mu.Unlock()
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	all := append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "test", "content-type", "application/grpc",
		"te", "trailers",
	}, headers...)
	for i := 0; i < len(all); i += 2 {
		if err := encoder.WriteField(hpack.HeaderField{Name: all[i], Value: all[i+1]}); err != nil {
			return 0, err
		}
	}
	return stream, c.framer.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: block.Bytes(),
		EndHeaders: true,
	})
}

// Send sends a part of a call's request in frames of at most size bytes (0: as large as may be), and ends the request
// if end is set. Send fails when the call has been answered meanwhile.
func (c *RawConn) Send(stream uint32, data []byte, size int, end bool) error {
	if size == 0 {
		size = 16384
	}
	for {
		n, err := c.allowed(stream, min(len(data), size))
		if err != nil {
			return err
		}
		last := end && n == len(data)
		c.writing.Lock()
		err = c.framer.WriteData(stream, last, data[:n])
		c.writing.Unlock()
		if err != nil {
			return err
		}
		if data = data[n:]; len(data) == 0 {
			return nil
		}
	}
}

// Reset ends a call as a client that has lost interest does.
func (c *RawConn) Reset(stream uint32) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
}

// Prefix precedes a gRPC message.
func Prefix(compressed bool, length int) []byte {
	prefix := []byte{0, byte(length >> 24), byte(length >> 16), byte(length >> 8), byte(length)}
	if compressed {
		prefix[0] = 1
	}
	return prefix
}

// Answer waits until a call has been answered.
func (c *RawConn) Answer(stream uint32, within time.Duration) (RawAnswer, error) {
	late := time.AfterFunc(within, func() { c.fail(fmt.Errorf("wire: no answer within %s", within)) })
	defer late.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.streams[stream].answer == nil {
		if c.err != nil {
			return RawAnswer{}, c.err
		}
		c.changed.Wait()
	}
	return *c.streams[stream].answer, nil
}

// allowed waits until some of so many bytes may be sent.
func (c *RawConn) allowed(stream uint32, most int) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[stream]
	for {
		switch {
		case c.err != nil:
			return 0, c.err
		case s.answer != nil:
			return 0, ErrAnswered
		}
		if n := min(int64(most), c.window, s.window); n > 0 || most == 0 {
			c.window -= n
			s.window -= n
			return int(n), nil
		}
		c.changed.Wait()
	}
}

func (c *RawConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.changed.Broadcast()
}

// read reads the server's frames until the connection ends.
func (c *RawConn) read() {
	defer close(c.ended)
	for {
		frame, err := c.framer.ReadFrame()
		if err != nil {
			c.fail(err)
			return
		}
		if err := c.takeFrame(frame); err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *RawConn) takeFrame(frame http2.Frame) error {
	switch frame := frame.(type) {
	case *http2.SettingsFrame:
		return c.applySettings(frame)
	case *http2.PingFrame:
		if frame.IsAck() {
			return nil
		}
		c.writing.Lock()
		defer c.writing.Unlock()
		return c.framer.WritePing(true, frame.Data)
	case *http2.WindowUpdateFrame:
		c.mu.Lock()
		defer c.mu.Unlock()
		if s := c.streams[frame.StreamID]; s != nil {
			s.window += int64(frame.Increment)
		} else if frame.StreamID == 0 {
			c.window += int64(frame.Increment)
		}
	case *http2.MetaHeadersFrame:
		if frame.StreamEnded() {
			c.answer(frame.StreamID, frame.Fields)
		}
		return nil
	case *http2.RSTStreamFrame:
		c.answer(frame.StreamID, nil)
		return nil
	}
	c.changed.Broadcast()
	return nil
}

func (c *RawConn) answer(stream uint32, fields []hpack.HeaderField) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[stream]
	if s == nil || s.answer != nil {
		return
	}
	s.answer = &RawAnswer{}
	for _, field := range fields {
		switch field.Name {
		case "grpc-status":
			s.answer.Status = field.Value
		case "grpc-message":
			s.answer.Message = field.Value
		}
	}
	c.changed.Broadcast()
}

// applySettings takes the server's settings.
func (c *RawConn) applySettings(frame *http2.SettingsFrame) error {
	if frame.IsAck() {
		return nil
	}
	if size, ok := frame.Value(http2.SettingInitialWindowSize); ok {
		c.mu.Lock()
		for _, s := range c.streams {
			s.window += int64(size) - c.initial
		}
		c.initial = int64(size)
		c.changed.Broadcast()
		c.mu.Unlock()
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.framer.WriteSettingsAck()
}
