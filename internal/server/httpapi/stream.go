package httpapi

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/msghandler/msghandler/internal/server/guard"
)

const (
	// prefixLen is the length of what precedes each message of a stream: one byte of flags and four of length.
	prefixLen = 5
	// flagCompressed and flagEnd are the flags: the message is compressed, the message is the end of the stream.
	flagCompressed = 1
	flagEnd        = 2
)

// stream is a call with one request and a stream of answers, in the framing of the Connect protocol.
type stream struct {
	call *call
	ctx  context.Context
	// begun says that the header of the answer is written.
	begun bool

	// receiving is the goroutine in RecvMsg. The guard does not wait for this goroutine when the context ends.
	receiving sync.WaitGroup
	// mu guards the fields below, and the read deadline while the request is received.
	mu sync.Mutex
	// received says that the request has been asked for, or that the handler has ended.
	received bool
	// reading says that the body is being read; whole says that the body has been read to its end.
	reading, whole bool
}

// serveStream runs a method with a stream of answers. Its error, if any, is the last message.
func (c *call) serveStream(ctx context.Context) {
	s := &stream{call: c, ctx: ctx}
	s.end(s.run())
}

// run runs the handler. After run, no goroutine reads the body or holds its bytes.
func (s *stream) run() error {
	defer s.stopReceiving()
	m := s.call.method
	info := &grpc.StreamServerInfo{FullMethod: m.path, IsServerStream: true}
	return s.call.api.config.Stream(m.implementation, s, info, m.stream.Handler)
}

// stopReceiving ends the reading of the body, and waits for the goroutine that reads. That goroutine must not outlast
// the call: the goroutine holds bytes of the budget, and sets deadlines, which HTTP/2 forbids after the call.
func (s *stream) stopReceiving() {
	s.mu.Lock()
	s.received = true
	if s.reading {
		if s.call.r.ProtoMajor == 1 { // HTTP/2 would close the connection for all of its calls
			s.call.w.Header().Set("Connection", "close")
		}
		_ = http.NewResponseController(s.call.w).SetReadDeadline(time.Now())
	}
	s.mu.Unlock()
	s.receiving.Wait()
}

// Context implements grpc.ServerStream.
func (s *stream) Context() context.Context { return s.ctx }

// SetHeader implements grpc.ServerStream. No method sets one.
func (*stream) SetHeader(metadata.MD) error { return nil }

// SetTrailer implements grpc.ServerStream. No method sets one.
func (*stream) SetTrailer(metadata.MD) {}

// SendHeader implements grpc.ServerStream. The header tells the client that the stream has begun.
func (s *stream) SendHeader(metadata.MD) error {
	s.begin()
	return http.NewResponseController(s.call.w).Flush()
}

func (s *stream) begin() {
	if !s.begun {
		s.begun = true
		s.call.w.Header().Set("Content-Type", s.call.codec.contentType)
		s.call.w.WriteHeader(http.StatusOK)
	}
}

// SendMsg implements grpc.ServerStream.
func (s *stream) SendMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return status.Errorf(codes.Internal, "an answer of type %T is no protobuf message", m)
	}
	body, err := s.call.codec.encode(message)
	if err != nil {
		return status.Error(codes.Internal, "the answer cannot be encoded")
	}
	return s.send(0, body)
}

// send writes one message.
func (s *stream) send(flags byte, body []byte) error {
	s.begin()
	framed := make([]byte, prefixLen, prefixLen+len(body))
	framed[0] = flags
	binary.BigEndian.PutUint32(framed[1:], uint32(len(body))) //nolint:gosec // far below 4 GiB
	_, err := s.call.w.Write(append(framed, body...))
	if err = errors.Join(err, http.NewResponseController(s.call.w).Flush()); err != nil {
		return status.Error(codes.Canceled, "the client has gone")
	}
	return nil
}

// end writes the last message, which holds the error.
func (s *stream) end(err error) {
	last := struct {
		Error *failure `json:"error,omitempty"`
	}{}
	if err != nil {
		f, _ := failureOf(err)
		last.Error = &f
	}
	if !s.whole {
		hurry(s.call.w, s.call.r)
	}
	body, _ := json.Marshal(last) // strings alone
	_ = s.send(flagEnd, body)     // the stream has ended, whether the client reads so or not
}

// RecvMsg implements grpc.ServerStream.
func (s *stream) RecvMsg(m any) error {
	isRead, ok := s.beginReading()
	if !ok {
		return io.EOF
	}
	defer s.receiving.Done()
	body, err := s.call.readFramed()
	isRead(err == nil)
	if err != nil {
		return err
	}
	return s.call.api.config.Guard.Decode(m, body, s.call.codec.decode)
}

// beginReading bounds the time in which the body must arrive, until isRead is called. The result is false where the
// request must not be read: it was read before, or the handler has ended.
func (s *stream) beginReading() (isRead func(whole bool), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.received {
		return nil, false
	}
	s.received, s.reading = true, true
	s.receiving.Add(1)
	unbound := s.call.arriving()
	return func(whole bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reading, s.whole = false, whole
		unbound()
	}, true
}

// readFramed reads the one message of the request.
func (c *call) readFramed() ([]byte, error) {
	var prefix [prefixLen]byte
	if _, err := io.ReadFull(c.r.Body, prefix[:]); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, notFramed("it has no message, which five bytes precede: a zero, and the length (big-endian)")
		}
		return nil, arrived(err)
	}
	length := int64(binary.BigEndian.Uint32(prefix[1:]))
	switch {
	case prefix[0] == flagCompressed:
		return nil, guard.ErrCompressed
	case prefix[0] != 0:
		return nil, notFramed("it has unknown flags: %d", prefix[0])
	case length > c.announced:
		return nil, notFramed("its message is longer than its body")
	}
	message := make([]byte, length)
	if _, err := io.ReadFull(c.r.Body, message); err != nil {
		return nil, arrived(err)
	}
	if c.more() { // with the end of its body, the server begins to look whether the client has gone
		return nil, notFramed("it has more than one message")
	}
	return message, nil
}

func notFramed(format string, args ...any) error {
	return problemf("NOT_FRAMED", "the request is not framed as a stream of the Connect protocol: "+format, args...)
}
